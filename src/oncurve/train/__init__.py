"""The loops: online (rollout, verify, update) and supervised."""

from oncurve.train.events import Evaluated, Event, Noted, Saved, Stepped
from oncurve.train.online import train
from oncurve.train.session import Session, formula_of

__all__ = ["Evaluated", "Event", "Noted", "Saved", "Session", "Stepped", "formula_of", "train"]
