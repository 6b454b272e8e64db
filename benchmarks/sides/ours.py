"""Our side of the comparison of whole steps: a run of oncurve that does one step when it is told to.

Writes into its folder what the other side needs to do the same: the model, the prompts of every step, ``job.json``.
"""

import json
import sys
import time
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from cases import CASES, Case
from channel import Channel
from transformers import Qwen3Config, Qwen3ForCausalLM

from oncurve.config import RunConfig
from oncurve.config.load import override, read_table, validated
from oncurve.evaluate import evaluate_policy
from oncurve.model import ModelSettings, load_policy
from oncurve.model.embedded import character_tokenizer
from oncurve.model.source import resolve_directory
from oncurve.rollout import local_engine
from oncurve.sandbox.own_memory import peak_bytes
from oncurve.tasks import CurriculumSampler, load_tasks
from oncurve.train.online_session import OnlineSession
from oncurve.train.session import Session
from oncurve.verify import Scorer

MOST_STEPS = 200
"""Steps that prompts are written for."""


def build_qwen3(directory: Path) -> None:
    """A decoder of 4 M random weights with the character tokenizer of the embedded model."""
    tokenizer = character_tokenizer()
    end = int(tokenizer.eos_token_id)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=5,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        eos_token_id=end,
        pad_token_id=end,
        bos_token_id=end,
    )
    torch.manual_seed(0)
    Qwen3ForCausalLM(config).save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def config_of(case: Case, folder: Path, threads: int, words: list[str]) -> RunConfig:
    table = read_table(None) if case.is_embedded else {}
    merge(table, case.settings)
    if case.build:
        build_qwen3(folder / "model")
        merge(table, {"model": {"path": str(folder / "model")}})
    merge(table, {"threads": threads, "run_dir": str(folder / "run")})
    override(table, words)
    return validated(RunConfig, table, f"the case {case.name}")


def merge(table: dict[str, Any], other: dict[str, Any]) -> None:
    for key, value in other.items():
        if isinstance(value, dict) and isinstance(table.get(key), dict):
            merge(table[key], value)
        else:
            table[key] = value


class Ours:
    """Answers the commands."""

    def __init__(self, case: Case, folder: Path, threads: int, words: list[str]) -> None:
        self.config = config_of(case, folder, threads, words)
        session = Session.create(self.config)
        if not isinstance(session, OnlineSession):
            raise TypeError(f"method {self.config.method} takes no steps of rollout and update")
        self.session = session
        self.num_steps = 0
        self.digest = self._write_job(case, folder)

    def step(self) -> dict[str, Any]:
        """The body of ``train_online``: collect, inspect, update, record."""
        number = self.num_steps
        started, cpu_started = time.perf_counter(), time.process_time()
        rollout = self.session.collect(number)
        list(self.session.inspect(number, rollout))
        done = self.session.record(number, rollout, self.session.update(rollout))
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
        self.num_steps += 1
        completions = [one for group in rollout.all_groups for one in group.completions]
        rewards = [reward for group in rollout.all_groups for reward in group.rewards if reward is not None]
        return {
            "seconds": seconds,
            "cpu_seconds": cpu_seconds,
            "parts": {name: value for name, value in done.metrics.items() if name.startswith("seconds/")},
            "tokens": sum(len(one.token_ids) for one in completions) / len(completions),
            "truncated": sum(one.is_truncated for one in completions) / len(completions),
            "reward": sum(rewards) / len(rewards),
            "peak_bytes": peak_bytes(),
        }

    def evaluate(self, path: str | None) -> dict[str, Any]:
        """Greedy accuracy on the held-out tasks, of our weights or of those in a directory."""
        settings = self.config.model if path is None else ModelSettings(path=path, dtype="float32")
        policy = self.session.policy if path is None else load_policy(settings, seed=0)
        tasks = load_tasks(self.config.tasks, seed=self.config.seed).held_out[: self.config.evaluation.num_tasks]
        engine = local_engine(policy, self.config.rollout)
        with Scorer(self.config.reward) as scorer:
            found = evaluate_policy(
                engine,
                scorer,
                tasks,
                policy.encode_prompt,
                sampling=self.config.rollout.sampling,
                num_samples=0,
                k=1,
                seed=self.config.seed,
                step=self.num_steps,
            )
        engine.close()
        return {"greedy": found.greedy, "interval": found.interval}

    def _write_job(self, case: Case, folder: Path) -> str:
        """Write what the other side needs, and return a digest of the first step's prompt ids."""
        config, policy = self.config, self.session.policy
        sampler = CurriculumSampler(
            load_tasks(config.tasks, seed=config.seed).train, config.tasks.curriculum, seed=config.seed
        )
        steps = [sampler.take(config.rollout.num_prompts) for _ in range(MOST_STEPS)]
        with (folder / "prompts.jsonl").open("w", encoding="utf-8") as file:
            for task in (task for step in steps for task in step):
                ids = list(policy.encode_prompt(task.prompt))
                text = policy.tokenizer.decode(ids)
                if policy.tokenizer.encode(text) != ids:
                    raise SystemExit(f"task {task.id}: its prompt does not survive decoding: {text!r}")
                row = {"prompt": text, "task_id": task.id, "gold": task.gold, "kind": task.kind}
                file.write(json.dumps({**row, "verifier": task.verifier, "meta": json.dumps(dict(task.meta))}) + "\n")
        job = {
            "model": str(resolve_directory(config.model.path)),
            "num_prompts": config.rollout.num_prompts,
            "group_size": config.rollout.group_size,
            "max_tokens": config.rollout.sampling.max_tokens,
            "temperature": config.rollout.sampling.temperature,
            "learner": config.learner.model_dump(mode="json"),
            "clip": [config.objective.clip_low, config.objective.clip_high],
            "reward": config.reward.model_dump(mode="json"),
            "steps": MOST_STEPS,
            **case.trl,
        }
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        first = [list(policy.encode_prompt(task.prompt)) for task in steps[0]]
        return blake2b(json.dumps(first).encode(), digest_size=8).hexdigest()


def main() -> None:
    channel = Channel()
    name, folder, threads, *words = sys.argv[1:]
    ours = Ours(CASES[name], Path(folder), int(threads), words)
    sizes = [parameter.numel() for parameter in ours.session.policy.model.parameters()]
    prompts = [json.loads(line)["prompt"] for line in (Path(folder) / "prompts.jsonl").open(encoding="utf-8")]
    lengths = [len(ours.session.policy.tokenizer.encode(prompt)) for prompt in prompts[:64]]
    channel.answer(
        prompt_digest=ours.digest,
        parameters=sum(sizes),
        prompt_tokens=sum(lengths) / len(lengths),
        dtype=str(ours.session.policy.model.dtype),
    )
    with ours.session:
        while (command := channel.ask())["do"] != "stop":
            match command["do"]:
                case "step":
                    channel.answer(**ours.step())
                case "evaluate":
                    channel.answer(**ours.evaluate(command.get("path")))


if __name__ == "__main__":
    main()
