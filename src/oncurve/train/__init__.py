"""The loops: online (rollout, verify, update) and offline (given pairs or examples)."""

from oncurve.report.progress import Saved
from oncurve.train.events import Evaluated, Event, Noted, Stepped
from oncurve.train.formula import formula_of
from oncurve.train.loops import train
from oncurve.train.offline_session import OfflineSession
from oncurve.train.online_session import OnlineSession
from oncurve.train.session import Session

__all__ = [
    "Evaluated",
    "Event",
    "Noted",
    "OfflineSession",
    "OnlineSession",
    "Saved",
    "Session",
    "Stepped",
    "formula_of",
    "train",
]
