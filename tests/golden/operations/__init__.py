"""Operation names of golden files, mapped to the functions of the package. Everything runs in float64."""

from tests.golden.operations import advantages, baselines, divergence, losses, measures, rewards
from tests.golden.operations.shared import Operation

OPERATIONS: dict[str, Operation] = {
    **advantages.OPERATIONS,
    **baselines.OPERATIONS,
    **divergence.OPERATIONS,
    **losses.OPERATIONS,
    **measures.OPERATIONS,
    **rewards.OPERATIONS,
}
"""What this package can check. A case with another name fails."""
