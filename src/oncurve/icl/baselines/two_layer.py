"""Two-layer networks trained by Adam on the examples of each prompt, all prompts and numbers of examples at once.

B prompts, K points, d dimensions, C chosen numbers of examples, N = B C networks, H hidden units, M examples a step.
Adam works on each weight alone, so the sum of the losses of N networks trains each as if it were by itself.
"""

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from oncurve.icl.baselines.closed import require_prompts
from oncurve.icl.baselines.fitted import require_counts
from oncurve.types import Settings


class TwoLayerSettings(Settings):
    """How the networks are trained; the defaults are those of Garg et al."""

    width: int = Field(100, ge=1)
    """Hidden units."""

    num_steps: int = Field(5000, ge=1)
    """Steps of Adam."""

    batch_size: int = Field(10, ge=1)
    """Examples a step, drawn from those of the prompt with replacement."""

    lr: float = Field(5e-3, gt=0)
    """Learning rate of Adam."""

    seed: int = Field(0, ge=0)
    """Of the starting weights and of the order of the examples."""


def two_layer(
    inputs: Tensor, targets: Tensor, counts: Sequence[int], settings: TwoLayerSettings | None = None
) -> Tensor:
    """Predict with a network w2 . relu(W1 x + b1) + b2 trained on the first n examples.

    Args:
        inputs: [B, K, d]
        targets: [B, K]
        counts: numbers of examples at which to predict; a prediction from none is 0.
        settings: of the training.

    Returns:
        [B, K] predictions, NaN where the number of examples is not in ``counts``.

    Source:
        Garg et al., arXiv:2208.01066, section 5.
    """
    require_prompts(inputs, targets)
    require_counts(counts, inputs.shape[1])
    predictions = torch.full_like(targets, torch.nan)
    trained = [count for count in counts if count > 0]
    predictions[:, [count for count in counts if count == 0]] = 0.0
    if trained:
        predictions[:, trained] = _train(inputs.float(), targets.float(), trained, settings or TwoLayerSettings())
    return predictions


def _train(inputs: Tensor, targets: Tensor, counts: Sequence[int], settings: TwoLayerSettings) -> Tensor:
    """Return the predictions of the trained networks for point n: [B, C]."""
    generator = torch.Generator().manual_seed(settings.seed)
    num_prompts, _, dim = inputs.shape
    row = torch.arange(num_prompts).repeat_interleave(len(counts))
    size = torch.tensor(list(counts)).repeat(num_prompts)
    weights = _initial(len(row), dim, settings.width, generator)
    optimizer = torch.optim.Adam(weights, lr=settings.lr)
    for _ in range(settings.num_steps):
        draw = torch.rand(len(row), settings.batch_size, generator=generator)
        chosen = (draw * size[:, None]).long()
        outputs = _forward(weights, inputs[row[:, None], chosen])
        loss = (outputs - targets[row[:, None], chosen]).square().mean(1).sum()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    with torch.no_grad():
        return _forward(weights, inputs[row, size][:, None]).reshape(num_prompts, len(counts))


def _initial(num: int, dim: int, width: int, generator: torch.Generator) -> list[Tensor]:
    """Uniform in +-1/sqrt(fan in), as torch's linear layers: [N, d, H], [N, 1, H], [N, H, 1], [N, 1, 1]."""

    def draw(*shape: int, fan_in: int) -> Tensor:
        bound = fan_in**-0.5
        weights: Tensor = (2 * torch.rand(num, *shape, generator=generator) - 1) * bound
        return weights.requires_grad_()

    return [
        draw(dim, width, fan_in=dim),
        draw(1, width, fan_in=dim),
        draw(width, 1, fan_in=width),
        draw(1, 1, fan_in=width),
    ]


def _forward(weights: Sequence[Tensor], points: Tensor) -> Tensor:
    """[N, M, d] -> [N, M]."""
    first, first_bias, second, second_bias = weights
    hidden = torch.relu(torch.baddbmm(first_bias, points, first))
    return torch.baddbmm(second_bias, hidden, second).squeeze(-1)
