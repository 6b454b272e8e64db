"""Layer by layer: what the network could predict from each hidden state, and which iterate that resembles.

A linear read-out is fitted to each layer in closed form, on the hidden state after a LayerNorm without weights, one
read-out for all numbers of examples. Its errors on held-out prompts, and the weights of the linear function that its
answers to fresh queries come nearest to, are set against those of iterative Newton and of gradient descent on the same
prompts.

Shapes: B prompts, K points, d dimensions, L layers, c width, T iterations, C numbers of examples, Q queries.

Source: Fu et al., arXiv:2310.17086, section 5.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from oncurve.icl.baselines import bayes, least_squares, strong_counts
from oncurve.icl.baselines.closed import predict_linear
from oncurve.icl.evaluate import predictions
from oncurve.icl.functions import FunctionSettings, Prompts, normaliser, require_linear, sample
from oncurve.icl.iterates import Spectrum, descent_weights, newton_weights, spectrum
from oncurve.icl.records import Record
from oncurve.icl.run import measure_run
from oncurve.icl.similarity import error_similarity, induced_weights, weight_similarity
from oncurve.icl.trend import Trend, trend
from oncurve.types import Settings, derive_seed

PROBE_FILE = "probe.json"
_WEIGHT_COUNTS = 8
"""Numbers of examples at which weights are compared, evenly spread."""
_OPPOSITE_QUERIES = 2
"""Pairs of opposite queries a dimension; opposite ones, so that a constant in the answers moves no weight."""


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

    weight_prompts: int = Field(64, ge=2)
    """The first of them, on which induced weights are measured: each asks 4 d queries at eight numbers of examples."""

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


class Match(Record):
    """The layers against the iterates of one algorithm, by one measure of likeness."""

    similarities: tuple[tuple[float, ...], ...]
    """[L + 1, T] of each layer and each iterate."""
    matched: tuple[int, ...]
    """[L + 1] the iterations with the highest similarity, the fewest of them on a tie."""
    trend: Trend


class Matching(Record):
    """The layers against the iterates of one algorithm."""

    iterations: tuple[int, ...]
    """[T] the numbers of iterations that were tried."""
    errors: tuple[tuple[float, ...], ...]
    """[T, K] E(n) of each iterate."""
    by_errors: Match
    """By SimE, over all numbers of examples."""
    by_weights: Match
    """By SimW, over ``weight_counts``."""


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
    weight_counts: tuple[int, ...]
    """[C] the numbers of examples at which weights were compared."""
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
    read_outs = fit_read_outs(network, sample(functions, settings.fit_prompts, num_points, generator))
    held_out = sample(functions, settings.held_out_prompts, num_points, generator)
    queries = torch.randn(_OPPOSITE_QUERIES * functions.dimension, functions.dimension, generator=generator)
    counts = strong_counts(num_points, _WEIGHT_COUNTS) or [0]
    few = held_out.first(settings.weight_prompts)
    layers = _Layers(
        predictions=layer_predictions(network, read_outs, held_out),
        counts=counts,
        weights=layer_weights(network, read_outs, few, counts, torch.cat([queries, -queries])),
    )
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


def layer_weights(
    network: Layered, read_outs: Sequence[Tensor], prompts: Prompts, counts: Sequence[int], queries: Tensor
) -> Tensor:
    """Return the induced weights of every layer with its read-out, after each number of examples: [L + 1, B, C, d].

    Args:
        network: the one to look into.
        read_outs: of ``fit_read_outs``.
        prompts: B of them.
        counts: [C] numbers of examples, each below K.
        queries: [Q, d] asked after every prompt.
    """

    def answer(inputs: Tensor, targets: Tensor) -> Tensor:
        return layer_predictions(network, read_outs, Prompts(inputs=inputs, targets=targets, clean=targets))

    weights = [induced_weights(answer, prompts.inputs, prompts.targets, count, queries) for count in counts]
    return torch.stack(weights, dim=2)


def error_curve(predicted: Tensor, prompts: Prompts, scale: float) -> tuple[float, ...]:
    """Return E(n): the mean squared error against the targets without noise, by ``scale``, [B, K] -> K numbers."""
    return tuple(((predicted - prompts.clean).double().square().mean(0) / scale).tolist())


@dataclass(frozen=True, kw_only=True, slots=True)
class _Layers:
    """What every layer says."""

    predictions: Tensor
    """[L + 1, B, K]"""
    counts: list[int]
    """[C]"""
    weights: Tensor
    """[L + 1, B or fewer, C, d] induced ones, of the first prompts."""


def _compare(
    network: Layered, layers: _Layers, prompts: Prompts, functions: FunctionSettings, settings: ProbeSettings
) -> ProbeResult:
    scale = normaliser(functions)
    reference = bayes(functions)
    ordinary = least_squares(prompts.inputs, prompts.targets)
    problem = spectrum(prompts.inputs, prompts.targets)

    def match(tried: Sequence[int], weights: Callable[[Spectrum, int], Tensor]) -> Matching:
        return _match(layers, prompts, scale, tried, (weights(problem, iterations) for iterations in tried))

    return ProbeResult(
        settings=settings,
        dimension=functions.dimension,
        model_errors=error_curve(predictions(network.predict, prompts), prompts, scale),
        layer_errors=tuple(error_curve(layer, prompts, scale) for layer in layers.predictions),
        reference_name=reference.name,
        reference_errors=error_curve(reference.predict(prompts.inputs, prompts.targets), prompts, scale),
        reference_similarities=tuple(error_similarity(layer, ordinary, prompts.clean) for layer in layers.predictions),
        weight_counts=tuple(layers.counts),
        newton=match(range(settings.newton_iterations + 1), newton_weights),
        descent=match(settings.descent_steps, descent_weights),
    )


def _match(
    layers: _Layers, prompts: Prompts, scale: float, tried: Sequence[int], iterates: Iterable[Tensor]
) -> Matching:
    """Compare the layers with iterates, [B, K, d] weights each."""
    num_prompts = layers.weights.shape[1]
    errors, by_errors, by_weights = [], [], []
    for weights in iterates:
        predicted = predict_linear(weights, prompts.inputs, prompts.targets)
        errors.append(error_curve(predicted, prompts, scale))
        by_errors.append([error_similarity(layer, predicted, prompts.clean) for layer in layers.predictions])
        own = weights[:num_prompts, layers.counts]
        by_weights.append([weight_similarity(layer, own) for layer in layers.weights])
    return Matching(
        iterations=tuple(tried),
        errors=tuple(errors),
        by_errors=_best(by_errors, tried),
        by_weights=_best(by_weights, tried),
    )


def _best(similarities: Sequence[Sequence[float]], tried: Sequence[int]) -> Match:
    """What each layer is most like, from [T, L + 1] similarities."""
    rows = tuple(zip(*similarities, strict=True))
    matched = tuple(tried[row.index(max(row))] for row in rows)
    return Match(similarities=rows, matched=matched, trend=trend(matched, tried[-1]))


@torch.no_grad()
def _features(network: Layered, prompts: Prompts) -> Iterator[tuple[list[Tensor], Tensor]]:
    """Yield for chunks of prompts the normed hidden states with a 1 behind, L + 1 times [B, K, c + 1], and targets."""
    for inputs, targets in prompts.in_chunks():
        states = network.hidden_states(inputs, targets)
        yield [F.pad(F.layer_norm(state.double(), state.shape[-1:]), (0, 1), value=1.0) for state in states], targets


def _added(sums: list[Tensor], terms: list[Tensor]) -> list[Tensor]:
    return [one + two for one, two in zip(sums, terms, strict=True)] if sums else terms
