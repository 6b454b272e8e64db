"""The loop of DPO and of supervised learning, on one screen.

given pairs or examples ──► take (a batch) ──► update (loss, step) ──► record ──► again

Nothing is sampled but for the evaluation. Records, checkpoints and evaluation are those of the online loop.
"""

from collections.abc import Callable, Iterator

from oncurve.train.events import Event
from oncurve.train.offline_session import OfflineSession


def train_offline(session: OfflineSession, *, should_stop: Callable[[], bool] = lambda: False) -> Iterator[Event]:
    """Run the remaining steps of a session; each yielded event is already on disk.

    Killed at any instant, a run continues from its last checkpoint to the same result, to the bit.

    Args:
        session: new, or resumed from a checkpoint.
        should_stop: asked between steps; True ends the run with a checkpoint.
    """
    for step in range(session.step, session.config.steps + 1):
        if session.is_evaluation_due(step):
            yield session.evaluate(step)
        if session.is_finished or should_stop():
            break
        batch = session.take()
        metrics = session.update(batch)
        yield session.record(step, metrics)
        if session.is_checkpoint_due:
            yield session.checkpoint(session.step)
    if session.saved_step != session.step:
        yield session.checkpoint(session.step)
