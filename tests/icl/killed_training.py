"""Train, and die by SIGKILL right before the n-th call of a function of the package."""

from oncurve.icl.settings import LabSettings
from oncurve.icl.training import Training, train
from tests.train.killed_run import kill_at_call


def train_until(place: str, count: int, settings: LabSettings) -> None:
    kill_at_call(place, count)
    with Training.create(settings, {}) as training:
        list(train(training))
