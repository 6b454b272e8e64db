"""The loop of GRPO, on one screen.

tasks ──► collect (rollout + verify) ──► update (advantage, ratio, clip, KL, step) ──► record ──► again

``collect`` is handed in: the local collector and a distributed one are two values of the same argument.
"""

from collections.abc import Callable, Iterator

from oncurve.train.events import Event
from oncurve.train.online_session import OnlineSession


def train_online(session: OnlineSession, *, should_stop: Callable[[], bool] = lambda: False) -> Iterator[Event]:
    """Run the remaining steps of a session; each yielded event is already on disk.

    A step's records carry its number, and a checkpoint of step N holds the state after N steps: whatever is killed
    in between is rewound to the last checkpoint and done again, to the bit.

    Args:
        session: new, or resumed from a checkpoint.
        should_stop: asked between steps; True ends the run with a checkpoint.
    """
    for step in range(session.step, session.config.steps + 1):
        if session.is_evaluation_due(step):
            yield session.evaluate(step)
        if session.is_finished or should_stop():
            break
        rollout = session.collect(step)
        yield from session.inspect(step, rollout)
        update = session.update(rollout)
        yield session.record(step, rollout, update)
        if session.is_checkpoint_due:
            yield session.checkpoint(session.step)
    if session.saved_step != session.step:
        yield session.checkpoint(session.step)
