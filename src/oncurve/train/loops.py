"""The loop that belongs to a session."""

from collections.abc import Callable, Iterator

from oncurve.train.events import Event
from oncurve.train.offline import train_offline
from oncurve.train.offline_session import OfflineSession
from oncurve.train.online import train_online
from oncurve.train.online_session import OnlineSession
from oncurve.train.session import Session


def train(session: Session, *, should_stop: Callable[[], bool] = lambda: False) -> Iterator[Event]:
    """Run the remaining steps of a session by the loop of its method; each yielded event is already on disk.

    Args:
        session: new, or resumed from a checkpoint.
        should_stop: asked between steps; True ends the run with a checkpoint.
    """
    if isinstance(session, OnlineSession):
        return train_online(session, should_stop=should_stop)
    if isinstance(session, OfflineSession):
        return train_offline(session, should_stop=should_stop)
    raise TypeError(f"there is no loop for {type(session).__name__}")
