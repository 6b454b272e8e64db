"""Layer by layer: what the network could predict from each hidden state, and which iterate that resembles.

A linear read-out is fitted to each layer in closed form, on the hidden state after a LayerNorm without weights, one
read-out for all numbers of examples. Its errors on held-out prompts are set against those of iterative Newton and of
gradient descent on the same prompts.

Shapes: B prompts, K points, d dimensions, L layers, c width, T iterations.

Source: Fu et al., arXiv:2310.17086, section 5.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from oncurve.icl.baselines import bayes, least_squares
from oncurve.icl.evaluate import predictions
from oncurve.icl.functions import FunctionSettings, Prompts, normaliser, require_linear, sample
from oncurve.icl.iterates import descent_predictions, newton_predictions
from oncurve.icl.records import Record
from oncurve.icl.run import measure_run
from oncurve.icl.similarity import error_similarity
from oncurve.icl.trend import Trend, trend
from oncurve.types import Settings, derive_seed

PROBE_FILE = "probe.json"


class Layered(Protocol):
    """A network whose predictions and hidden states can be read."""

    def predict(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """[B, K, d], [B, K] -> [B, K]."""
        ...

    def hidden_states(self, inputs: Tensor, targets: Tensor) -> list[Tensor]:
        """[B, K, d], [B, K] -> L + 1 times [B, K, c]."""
        ...


class ProbeSettings(Settings):
    """How much is measured."""

    fit_prompts: int = Field(4096, ge=8)
    """Prompts on which the read-outs are fitted."""

    held_out_prompts: int = Field(1024, ge=8)
    """Prompts on which everything is measured."""

    newton_iterations: int = Field(24, ge=2, le=60)
    """Most Newton iterations that a layer is compared with."""

    descent_doublings: int = Field(12, ge=2, le=30)
    """Gradient descent is compared up to 2 to this power of steps, in factors of about 1.41."""

    seed: int = Field(0, ge=0)
    """Of the prompts."""

    @property
    def descent_steps(self) -> tuple[int, ...]:
        """0, 1, 2, 3, 4, 6, 8, 11, 16, ... steps of gradient descent."""
        return tuple(sorted({0, *(round(2 ** (half / 2)) for half in range(2 * self.descent_doublings + 1))}))


class Matching(Record):
    """The layers against the iterates of one algorithm."""

    iterations: tuple[int, ...]
    """[T] the numbers of iterations that were tried."""
    errors: tuple[tuple[float, ...], ...]
    """[T, K] E(n) of each iterate."""
    similarities: tuple[tuple[float, ...], ...]
    """[L + 1, T] SimE of each layer and each iterate."""
    matched: tuple[int, ...]
    """[L + 1] the iterations with the highest similarity, the fewest of them on a tie."""
    trend: Trend


class ProbeResult(Record):
    """Everything that the probe measured on the held-out prompts. E(n) is divided by ``normaliser``."""

    settings: ProbeSettings
    dimension: int
    model_errors: tuple[float, ...]
    """[K] E(n) of the network itself."""
    layer_errors: tuple[tuple[float, ...], ...]
    """[L + 1, K] E(n) of the read-out of each layer."""
    reference_name: str
    """least squares, or ridge for noisy targets."""
    reference_errors: tuple[float, ...]
    """[K] E(n) of it."""
    reference_similarities: tuple[float, ...]
    """[L + 1] SimE of each layer and ordinary least squares."""
    newton: Matching
    descent: Matching

    @property
    def mean_layer_errors(self) -> list[float]:
        """[L + 1] mean over n."""
        return [sum(errors) / len(errors) for errors in self.layer_errors]


def run_probe(run: Path, settings: ProbeSettings | None = None) -> ProbeResult:
    """Probe the network of a run and write ``probe.json`` into its folder.

    Raises as ``measure_run`` and ``probe``.
    """
    chosen = settings or ProbeSettings()
    return measure_run(
        run, PROBE_FILE, lambda functions, network: probe(network, functions, network.max_points, chosen)
    )


def probe(network: Layered, functions: FunctionSettings, num_points: int, settings: ProbeSettings) -> ProbeResult:
    """Measure all layers of a network.

    Args:
        network: the one to look into.
        functions: the class it was trained on, linear or sparse.
        num_points: K, points a prompt.
        settings: how much is measured.

    Raises:
        ValueError: the class has no weights that an iteration could approach.
    """
    require_linear(functions, "the probe compares layers with iterations for")
    generator = torch.Generator().manual_seed(derive_seed("icl probe", settings.seed) % 2**63)
    weights = fit_read_outs(network, sample(functions, settings.fit_prompts, num_points, generator))
    held_out = sample(functions, settings.held_out_prompts, num_points, generator)
    layers = layer_predictions(network, weights, held_out)
    return _compare(network, layers, held_out, functions, settings)


def fit_read_outs(network: Layered, prompts: Prompts) -> list[Tensor]:
    """Fit a linear read-out with intercept to every layer: L + 1 times [c + 1] float64.

    Least squares of minimum norm on all points of all prompts, through the normal equations.
    """
    grams: list[Tensor] = []
    moments: list[Tensor] = []
    for states, targets in _features(network, prompts):
        values = targets.double().flatten()
        flat = [state.flatten(0, 1) for state in states]
        grams = _added(grams, [state.mT @ state for state in flat])
        moments = _added(moments, [state.mT @ values for state in flat])
    return [torch.linalg.pinv(gram, hermitian=True) @ moment for gram, moment in zip(grams, moments, strict=True)]


def layer_predictions(network: Layered, read_outs: Sequence[Tensor], prompts: Prompts) -> Tensor:
    """Predict from every layer with its read-out: [L + 1, B, K]."""
    chunks = [
        torch.stack([state @ weights for state, weights in zip(states, read_outs, strict=True)])
        for states, _ in _features(network, prompts)
    ]
    return torch.cat(chunks, dim=1).to(prompts.targets.dtype)


def error_curve(predicted: Tensor, prompts: Prompts, scale: float) -> tuple[float, ...]:
    """Return E(n): the mean squared error against the targets without noise, by ``scale``, [B, K] -> K numbers."""
    return tuple(((predicted - prompts.clean).double().square().mean(0) / scale).tolist())


def _compare(
    network: Layered, layers: Tensor, prompts: Prompts, functions: FunctionSettings, settings: ProbeSettings
) -> ProbeResult:
    scale = normaliser(functions)
    reference = bayes(functions)
    ordinary = least_squares(prompts.inputs, prompts.targets)
    newton_tried = tuple(range(settings.newton_iterations + 1))

    def match(tried: tuple[int, ...], iterate: Callable[[Tensor, Tensor, Sequence[int]], Tensor]) -> Matching:
        return _match(layers, prompts, scale, tried, iterate(prompts.inputs, prompts.targets, tried))

    return ProbeResult(
        settings=settings,
        dimension=functions.dimension,
        model_errors=error_curve(predictions(network.predict, prompts), prompts, scale),
        layer_errors=tuple(error_curve(layer, prompts, scale) for layer in layers),
        reference_name=reference.name,
        reference_errors=error_curve(reference.predict(prompts.inputs, prompts.targets), prompts, scale),
        reference_similarities=tuple(error_similarity(layer, ordinary, prompts.clean) for layer in layers),
        newton=match(newton_tried, newton_predictions),
        descent=match(settings.descent_steps, descent_predictions),
    )


def _match(layers: Tensor, prompts: Prompts, scale: float, tried: tuple[int, ...], iterates: Tensor) -> Matching:
    similarities = [[error_similarity(layer, one, prompts.clean) for one in iterates] for layer in layers]
    matched = tuple(tried[row.index(max(row))] for row in similarities)
    return Matching(
        iterations=tried,
        errors=tuple(error_curve(one, prompts, scale) for one in iterates),
        similarities=tuple(map(tuple, similarities)),
        matched=matched,
        trend=trend(matched, tried[-1]),
    )


@torch.no_grad()
def _features(network: Layered, prompts: Prompts) -> Iterator[tuple[list[Tensor], Tensor]]:
    """Yield for chunks of prompts the normed hidden states with a 1 behind, L + 1 times [B, K, c + 1], and targets."""
    for inputs, targets in prompts.in_chunks():
        states = network.hidden_states(inputs, targets)
        yield [F.pad(F.layer_norm(state.double(), state.shape[-1:]), (0, 1), value=1.0) for state in states], targets


def _added(sums: list[Tensor], terms: list[Tensor]) -> list[Tensor]:
    return [one + two for one, two in zip(sums, terms, strict=True)] if sums else terms
