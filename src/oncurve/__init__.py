"""Reinforcement learning with verifiable rewards, graded on the curve of each completion's own group."""

__version__ = "0.1.0"
