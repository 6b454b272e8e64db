"""The engine of a run on one machine."""

from oncurve.model import Policy
from oncurve.rollout.multi_turn import ToolEngine
from oncurve.rollout.settings import RolloutSettings
from oncurve.rollout.torch_engine import TorchEngine


def local_engine(policy: Policy, settings: RolloutSettings) -> ToolEngine:
    """An engine on the live weights that plays tool tasks too. Close it: environments run in a process of their own."""
    engine = TorchEngine(policy, max_rows=settings.max_rows, max_cache_tokens=settings.max_cache_tokens)
    return ToolEngine(engine, policy, settings.tools)
