"""The loops: online (rollout, verify, update) and supervised."""

from oncurve.train.events import Evaluated, Event, Saved, Stepped
from oncurve.train.online import train
from oncurve.train.session import Session, formula_of

__all__ = ["Evaluated", "Event", "Saved", "Session", "Stepped", "formula_of", "train"]
