"""The other side of the comparison of whole steps: TRL's GRPOTrainer, held between its steps.

Runs in an environment of its own. A callback of the trainer stops after each optimiser step and waits for the next
command, so that steps of both sides alternate; the clock runs from one command to the end of the step that it starts.
"""

import importlib.util
import json
import sys
import time
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from channel import Channel
from datasets import Dataset
from transformers import AutoTokenizer, TrainerCallback, set_seed
from trl import GRPOConfig, GRPOTrainer

from oncurve.sandbox.own_memory import peak_bytes
from oncurve.types import Task
from oncurve.verify import Item, RewardSettings, Scorer

WEIGHTS = {"bfloat16": "bfloat16", "float32": "float32", "autocast": "float32"}
METRICS = {"tokens": "completions/mean_length", "truncated": "completions/clipped_ratio", "reward": "reward"}


def reward_of(settings: dict[str, Any]) -> Callable[..., list[float | None]]:
    """The reward of our run: its one function called directly, or its verifiers behind TRL's signature."""
    parts = settings["components"]
    if len(parts) == 1 and ".py:" in next(iter(parts.values()))["verifier"]:
        path, _, name = next(iter(parts.values()))["verifier"].rpartition(":")
        spec = importlib.util.spec_from_file_location("reward", path)
        if spec is None or spec.loader is None:
            raise SystemExit(f"cannot load the reward function {path}")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return getattr(module, name)  # type: ignore[no-any-return]
    scorer = Scorer(RewardSettings.model_validate(settings))

    def scored(prompts: list[str], completions: list[str], completion_ids: list[list[int]], **columns: Any) -> Any:
        items = []
        for place, text in enumerate(completions):
            row = {name: columns[name][place] for name in ("gold", "kind", "verifier")}
            task = Task(
                id=columns["task_id"][place],
                prompt=prompts[place],
                meta=json.loads(columns["meta"][place]),
                **row,
            )
            items.append(Item(task=task, text=text, token_ids=tuple(completion_ids[place])))
        return [verdict.reward for verdict in scorer.score(items)]

    return scored


class Held(TrainerCallback):
    """Stops the trainer between steps; ``given`` are the trainer's arguments, its state and its control."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._started = self._cpu_started = 0.0
        self.trainer: Any = None
        self.generating = 0.0

    def on_train_begin(self, *given: Any, **_: Any) -> None:
        self._wait(given[2])

    def on_step_end(self, *given: Any, **_: Any) -> None:
        seconds, cpu_seconds = time.perf_counter() - self._started, time.process_time() - self._cpu_started
        metrics = self.trainer._metrics["train"]
        self._channel.answer(
            seconds=seconds,
            cpu_seconds=cpu_seconds,
            parts={"seconds/rollout": self.generating, "seconds/update": seconds - self.generating},
            peak_bytes=peak_bytes(),
            **{name: metrics[key][-1] for name, key in METRICS.items()},
        )
        metrics.clear()
        self._wait(given[2])

    def _wait(self, control: Any) -> None:
        while (command := self._channel.ask())["do"] == "save":
            self.trainer.model.save_pretrained(command["path"])
            self.trainer.processing_class.save_pretrained(command["path"])
            self._channel.answer()
        control.should_training_stop = command["do"] == "stop"
        self.generating = 0.0
        self._started, self._cpu_started = time.perf_counter(), time.process_time()


def give_positions(_: Any, words: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Count positions from the first real token, as ``generate`` does.

    The trainer pads prompts on the left and passes no positions, so that a model with learned ones would be trained at
    other positions than it was sampled at, and learn far less.
    """
    if "position_ids" not in named and named.get("labels") is not None:
        named = named | {"position_ids": (named["attention_mask"].cumsum(-1) - 1).clamp(min=0)}
    return words, named


def settings_of(job: dict[str, Any], folder: Path) -> GRPOConfig:
    learner, rows = job["learner"], job["num_prompts"] * job["group_size"]
    micro_batches = job.get("micro_batches", 1)
    return GRPOConfig(
        output_dir=str(folder / "trl"),
        use_cpu=True,
        bf16=job["dtype"] == "autocast",
        model_init_kwargs={"dtype": WEIGHTS[job["dtype"]], "attn_implementation": job["attention"]},
        gradient_checkpointing=False,
        per_device_train_batch_size=rows // micro_batches,
        gradient_accumulation_steps=micro_batches,
        num_generations=job["group_size"],
        max_completion_length=job["max_tokens"],
        temperature=job["temperature"],
        shuffle_dataset=False,
        max_steps=job["steps"],
        learning_rate=learner["lr"],
        lr_scheduler_type="constant",
        weight_decay=learner["weight_decay"],
        adam_beta1=learner["beta1"],
        adam_beta2=learner["beta2"],
        adam_epsilon=learner["adam_eps"],
        max_grad_norm=learner["max_grad_norm"],
        beta=0.0,
        epsilon=job["clip"][0],
        epsilon_high=job["clip"][1],
        loss_type="dapo",  # a mean over the tokens of the step, as token-mean is
        scale_rewards="group",
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )


def main() -> None:
    channel = Channel()
    folder, threads = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(threads)
    set_seed(0)
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    rows = [json.loads(line) for line in (folder / "prompts.jsonl").open(encoding="utf-8")]
    held = Held(channel)
    trainer = GRPOTrainer(
        model=job["model"],
        reward_funcs=reward_of(job["reward"]),
        args=settings_of(job, folder),
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(job["model"]),
        callbacks=[held],
    )
    trainer.model.register_forward_pre_hook(give_positions, with_kwargs=True)
    held.trainer, generate = trainer, trainer._generate

    def timed(*words: Any) -> Any:
        started = time.perf_counter()
        found = generate(*words)
        held.generating += time.perf_counter() - started
        return found

    trainer._generate = timed  # type: ignore[method-assign]
    first = [trainer.processing_class(text=row["prompt"])["input_ids"] for row in rows[: job["num_prompts"]]]
    channel.answer(
        prompt_digest=blake2b(json.dumps(first).encode(), digest_size=8).hexdigest(),
        parameters=sum(parameter.numel() for parameter in trainer.model.parameters()),
        dtype=str(trainer.model.dtype),
        attention=trainer.model.config._attn_implementation,
        threads=torch.get_num_threads(),
    )
    trainer.train()


if __name__ == "__main__":
    main()
