"""Train a transformer on prompts, new ones at every step; killed at any instant, it continues to the same bits."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from oncurve.icl.evaluate import held_out, predictions, squared_errors
from oncurve.icl.functions import normaliser, sample
from oncurve.icl.run import dump_settings, formula, generator, new_regressor, read_settings, settled
from oncurve.icl.settings import LabSettings
from oncurve.icl.training_checkpoint import list_checkpoints, load_checkpoint, save_checkpoint
from oncurve.icl.training_optimizer import Optimizer, rate
from oncurve.model.threads import use_threads
from oncurve.report import RunFolder
from oncurve.report.folder import next_folder
from oncurve.report.progress import Saved
from oncurve.types import ConfigError, NumericsError


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A line of metrics was recorded."""

    step: int
    """Steps done so far."""
    metrics: Mapping[str, float | None]


class Training:
    """One run with what it holds: made new from settings, or continued from its folder. Use it as a context.

    The next step depends on the weights, the optimiser's moments and the number of steps done, and on nothing else:
    prompts are drawn from a seed that names the run's seed and the step.
    """

    def __init__(self, settings: LabSettings, folder: RunFolder) -> None:
        self.settings, self.folder = settings, folder
        self.regressor = new_regressor(settings)
        self.optimizer = Optimizer(self.regressor, settings.optimizer)
        self.step = 0
        self.seconds = 0.0
        """Wall-clock seconds of all sittings together."""
        self.cpu_seconds = 0.0
        self.pending: list[Tensor] = []
        """[2] loss and gradient norm of each step since the last line of metrics."""

    @classmethod
    def create(cls, settings: LabSettings, environment: Mapping[str, Any]) -> Self:
        """Start a run in a new folder, whose config.toml says what was left to the machine.

        Raises:
            ConfigError: there is no such device here.
            RunError: the folder holds something.
            StorageError: the disk refused.
        """
        _require_device(settings)
        settings = settled(settings, use_threads(settings.threads))
        path = Path(settings.run_dir) if settings.run_dir else next_folder(Path(settings.output), settings.name)
        folder = RunFolder.create(
            path, config_toml=dump_settings(settings), environment=environment, formula=formula(settings)
        )
        folder.lock()
        return cls(settings, folder)

    @classmethod
    def resume(cls, path: Path) -> Self:
        """Continue a run from its last checkpoint; without one, from its beginning.

        Raises:
            RunError: the folder is no run of the laboratory, is being written, or its checkpoint is damaged.
        """
        settings, folder = read_settings(path), RunFolder.open(path)
        _require_device(settings)
        use_threads(settings.threads)
        folder.lock()
        training = cls(settings, folder)
        found = list_checkpoints(folder.checkpoints)
        if found:
            training._restore(load_checkpoint(found[-1]))
        folder.rewind(training.step + 1 if training.step else 0)
        return training

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.folder.unlock()

    @property
    def is_finished(self) -> bool:
        """True when all steps are done."""
        return self.step >= self.settings.steps

    def advance(self) -> None:
        """Take one optimiser step on new prompts."""
        wall, cpu = time.perf_counter(), time.process_time()
        self._update()
        self.seconds += time.perf_counter() - wall
        self.cpu_seconds += time.process_time() - cpu

    def _update(self) -> None:
        settings = self.settings
        dimension, points = settings.stage(self.step)
        source = generator(settings, "train", self.step)
        prompts = sample(settings.functions, settings.batch_size, points, source, active_dimension=dimension)
        predicted = self.regressor.predict(prompts.inputs, prompts.targets)
        loss = (predicted - prompts.targets).square().mean() / normaliser(settings.functions)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = self.optimizer.step(rate(settings.optimizer, self.step, settings.steps))
        self.pending.append(torch.stack([loss.detach(), norm]))
        self.step += 1

    def measure(self) -> dict[str, float | None]:
        """Record the means since the last line, and at its turn the error on held-out prompts.

        Raises:
            NumericsError: the loss, the gradient or a weight is no longer finite.
        """
        self._require_finite()
        losses, norms = torch.stack(self.pending).double().cpu().unbind(1)
        row: dict[str, float | None] = {
            "loss": math.fsum(losses.tolist()) / len(losses),
            "grad/norm": math.fsum(norms.tolist()) / len(norms),
            "lr": self.settings.optimizer.lr * rate(self.settings.optimizer, self.step - 1, self.settings.steps),
            "seconds/total": self.seconds,
            "seconds/cpu": self.cpu_seconds,
        }
        if self.is_turn(self.settings.eval_every):
            row |= self._look()
        self.folder.append_metrics({"step": self.step, **row})
        self.pending = []
        return row

    def save(self) -> Path:
        """Write a checkpoint.

        Raises:
            NumericsError: the loss, the gradient or a weight is no longer finite; earlier checkpoints stay.
            StorageError: the disk refused.
        """
        self._require_finite()
        self.folder.sync()
        state = {
            "step": self.step,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "weights": self.regressor.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "pending": torch.stack(self.pending) if self.pending else torch.zeros(0, 2),
        }
        return save_checkpoint(self.folder.checkpoints, self.step, state, keep=self.settings.keep_checkpoints)

    def is_due(self, every: int) -> bool:
        """True at the end and whenever so many steps have passed."""
        return self.is_finished or self.is_turn(every)

    def is_turn(self, every: int) -> bool:
        """True whenever so many steps have passed; never for 0."""
        return every > 0 and self.step % every == 0

    def _require_finite(self) -> None:
        is_finite = [bool(step.isfinite().all()) for step in self.pending]
        if not all(is_finite):
            broken = self.step - len(is_finite) + is_finite.index(False) + 1
            raise self._numerics_error(f"the loss or its gradient is not finite in step {broken}")
        if not torch.nn.utils.get_total_norm(self.regressor.parameters()).isfinite():
            raise self._numerics_error(f"the weights are not finite after step {self.step}")

    def _numerics_error(self, found: str) -> NumericsError:
        kept = list_checkpoints(self.folder.checkpoints)
        return NumericsError(
            f"{found}. Train anew with a lower optimizer.lr or optimizer.muon_lr, or with network.precision = float32. "
            f"{f'The last good checkpoint is kept: {kept[-1]}' if kept else 'There is no checkpoint yet'}."
        )

    def _look(self) -> dict[str, float]:
        prompts = held_out(self.settings, max(2, self.settings.eval_prompts // 5))
        errors = squared_errors(self.settings, predictions(self.regressor.predict, prompts), prompts).mean(0)
        return {"eval/mean": errors.mean().item(), "eval/last": errors[-1].item()}

    def _restore(self, state: Mapping[str, Any]) -> None:
        self.step = int(state["step"])
        self.seconds, self.cpu_seconds = float(state["seconds"]), float(state["cpu_seconds"])
        self.regressor.load_state_dict(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.pending = list(state["pending"].to(self.settings.device).unbind(0))


def _require_device(settings: LabSettings) -> None:
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "device is cuda, but torch sees no such device here. Add --device cpu, with a smaller network than that of "
            "the paper, or use a machine and a build of torch with CUDA."
        )


def train(training: Training, should_stop: Callable[[], bool] = lambda: False) -> Iterator[Measured | Saved]:
    """Take the steps that are left, telling what is recorded; stop early with a checkpoint when asked or out of time.

    The time that counts is that of this call: a training that was continued has ``max_seconds`` again.

    Raises:
        NumericsError: loss, gradient or weights are no longer finite; the last good checkpoint stays as it is.
        StorageError: the disk refused.
    """
    settings = training.settings
    end = training.seconds + (settings.max_seconds or math.inf)
    while not training.is_finished:
        training.advance()
        is_stopping = should_stop() or training.seconds >= end
        if training.is_due(settings.log_every) or training.is_turn(settings.eval_every):
            yield Measured(step=training.step, metrics=training.measure())
        if training.is_due(settings.checkpoint_every) or is_stopping:
            yield Saved(step=training.step, path=training.save())
        if is_stopping:
            return
