"""Change a policy: groups to optimiser steps, and checkpoints that survive a kill."""

from oncurve.learner.checkpoint import latest_checkpoint, list_checkpoints, load_state, save_checkpoint
from oncurve.learner.critic import Critic, CriticSettings
from oncurve.learner.learner import Learner, UpdateResult
from oncurve.learner.preference import PreferenceLearner, PreferencePair
from oncurve.learner.settings import LearnerSettings
from oncurve.learner.statistics import rollout_metrics
from oncurve.learner.stopwatch import time_metrics
from oncurve.learner.supervised import SupervisedLearner

__all__ = [
    "Critic",
    "CriticSettings",
    "Learner",
    "LearnerSettings",
    "PreferenceLearner",
    "PreferencePair",
    "SupervisedLearner",
    "UpdateResult",
    "latest_checkpoint",
    "list_checkpoints",
    "load_state",
    "rollout_metrics",
    "save_checkpoint",
    "time_metrics",
]
