"""Run as a process of its own: load a model, take two updates, say how much memory that took at most.

Argument: a JSON object with ``directory`` (of a config.json), ``model`` and ``learner`` settings, sizes of the rollout.
Prints a JSON object with ``before`` (libraries loaded) and ``peak``, in bytes.
"""

import json
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from oncurve.algo import ObjectiveSettings
from oncurve.learner import Learner, LearnerSettings
from oncurve.model import LoraSettings, Policy, fresh_embedded_policy
from oncurve.model.load import freeze_embeddings
from oncurve.model.lora import attach_adapter
from oncurve.sandbox.own_memory import peak_bytes
from oncurve.types import Completion, FinishReason, Group, Sampling, Status, Task, Verdict


def groups_of(prompts: int, group: int, prompt_tokens: int, max_tokens: int, sampling: Sampling) -> list[Group]:
    """Completions of full length, each different from its first token on."""
    generator = torch.Generator().manual_seed(0)
    groups = []
    for place in range(prompts):
        prompt = tuple(torch.randint(1, 900, (prompt_tokens,), generator=generator).tolist())
        said = torch.randint(1, 900, (group, max_tokens), generator=generator).tolist()
        completions = [
            Completion(
                task_id=str(place),
                index=index,
                prompt_ids=prompt,
                token_ids=tuple(tokens),
                policy_version=0,
                old_logprobs=(-5.0,) * max_tokens,
                finish_reason=FinishReason.LENGTH,
                sampling=sampling,
                text="",
            )
            for index, tokens in enumerate(said)
        ]
        verdicts = [Verdict(status=Status.CORRECT, reward=float(index % 2)) for index in range(group)]
        task = Task(id=str(place), prompt="", gold="", kind="test", verifier="test")
        groups.append(Group(task=task, completions=tuple(completions), verdicts=tuple(verdicts)))
    return groups


def main() -> None:
    case = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    tokenizer = fresh_embedded_policy(0, width=8, num_layers=1, num_heads=1).tokenizer
    before = peak_bytes()
    config = AutoConfig.from_pretrained(case["directory"])
    options = {"dtype": getattr(torch, case["model"].get("dtype", "float32"))}
    model = AutoModelForCausalLM.from_config(config, **options).train(False)
    policy = Policy(model=model, tokenizer=tokenizer, terminators=frozenset({0}), context_length=512)
    if case["model"].get("freeze_embeddings"):
        freeze_embeddings(model)
    if case["model"].get("gradient_checkpointing"):
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if "lora" in case["model"]:
        policy.adapter = attach_adapter(model, LoraSettings.model_validate(case["model"]["lora"]), seed=0)
    sampling = Sampling(max_tokens=case["max_tokens"])
    groups = groups_of(case["prompts"], case["group"], case["prompt_tokens"], case["max_tokens"], sampling)
    settings = LearnerSettings.model_validate({**case["learner"], "max_logprob_gap": 1e3})
    learner = Learner(policy, settings, ObjectiveSettings(), sampling=sampling)
    learner.update(groups)
    learner.update(groups)
    print(json.dumps({"before": before, "peak": peak_bytes()}))


if __name__ == "__main__":
    main()
