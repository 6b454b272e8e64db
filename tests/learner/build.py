"""Tiny policies of several families, a plain sampler, and groups with given rewards."""

from collections.abc import Sequence

import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from oncurve.learner import Learner, LearnerSettings
from oncurve.model import Policy, fresh_embedded_policy
from oncurve.types import Completion, FinishReason, Group, Sampling, Status, Task, Verdict

VOCABULARY = 61  # that of the character tokenizer of the embedded model
SAMPLING = Sampling(temperature=0.7, max_tokens=9)
_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "initializer_range": 0.5,  # far from uniform, so that every term of the loss is visible
}


def _gpt2() -> PreTrainedModel:
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=64,
            n_embd=16,
            n_layer=2,
            n_head=2,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
            pad_token_id=0,
            initializer_range=0.3,
        )
    )


FAMILIES = {
    "gpt2": _gpt2,
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**_SIZES)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**_SIZES)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**_SIZES, tie_word_embeddings=True)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**_SIZES, sliding_window=4)),
    "gemma3": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**_SIZES, sliding_window=4)),
    "gemma2": lambda: Gemma2ForCausalLM(Gemma2Config(**_SIZES, sliding_window=4, final_logit_softcapping=2.0)),
}


def tiny_policy(family: str = "gpt2", *, dtype: torch.dtype = torch.float32, seed: int = 0) -> Policy:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = FAMILIES[family]().to(dtype)
    model.eval()
    tokenizer = fresh_embedded_policy(0, width=8, num_layers=1, num_heads=1).tokenizer
    return Policy(model=model, tokenizer=tokenizer, terminators=frozenset({0}), context_length=64)


def sample_groups(
    policy: Policy,
    rewards: Sequence[Sequence[float | None]],
    *,
    sampling: Sampling = SAMPLING,
    seed: int = 0,
) -> list[Group]:
    """One group a row of rewards, prompts of different lengths, each completion sampled alone, token by token."""
    generator = torch.Generator().manual_seed(seed)
    groups = []
    for place, row in enumerate(rewards):
        prompt = tuple(5 + (7 * place + offset) % 50 for offset in range(2 + 3 * (place % 3)))
        completions = [_sample(policy, f"t{place}", index, prompt, sampling, generator) for index in range(len(row))]
        groups.append(group_of(f"t{place}", completions, row))
    return groups


def group_of(task_id: str, completions: Sequence[Completion], rewards: Sequence[float | None]) -> Group:
    task = Task(id=task_id, prompt="", gold="", kind="test", verifier="test")
    return Group(task=task, completions=tuple(completions), verdicts=tuple(verdict_of(reward) for reward in rewards))


def verdict_of(reward: float | None) -> Verdict:
    if reward is None:
        return Verdict(status=Status.NO_VERDICT, reward=None, cause="timeout")
    status = Status.CORRECT if reward >= 0.5 else Status.WRONG
    return Verdict(status=status, reward=reward, components={"answer": reward})


@torch.no_grad()
def _sample(
    policy: Policy, task_id: str, index: int, prompt: tuple[int, ...], sampling: Sampling, generator: torch.Generator
) -> Completion:
    ids, logprobs = list(prompt), []
    while len(logprobs) < sampling.max_tokens and (not logprobs or ids[-1] != 0):
        logits = policy.model(input_ids=torch.tensor([ids])).logits[0, -1]
        distribution = torch.log_softmax(
            logits.to(torch.promote_types(logits.dtype, torch.float32)) / sampling.temperature, -1
        )
        token = int(torch.multinomial(distribution.exp(), 1, generator=generator))
        ids.append(token)
        logprobs.append(distribution[token].item())
    return Completion(
        task_id=task_id,
        index=index,
        prompt_ids=prompt,
        token_ids=tuple(ids[len(prompt) :]),
        old_logprobs=tuple(logprobs),
        policy_version=0,
        finish_reason=FinishReason.STOP if ids[-1] == 0 else FinishReason.LENGTH,
        sampling=sampling,
        text="",
    )


def gradient_settings(**changes: object) -> LearnerSettings:
    """Settings under which AdamW's first moment after the first step is the gradient itself."""
    return LearnerSettings(beta1=0.0, max_grad_norm=1e12, **changes)


def gradient_of(learner: Learner) -> dict[str, torch.Tensor]:
    """The gradient of the only step taken so far, under ``gradient_settings``."""
    state = learner.state_dict()["optimizer"]
    decayed = [name for name, master in state["masters"].items() if master.ndim >= 2]
    plain = [name for name, master in state["masters"].items() if master.ndim < 2]
    return {name: state["adamw"]["state"][i]["exp_avg"].clone() for i, name in enumerate(decayed + plain)}


def largest_difference(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> float:
    """Largest absolute difference, relative to the largest entry on the right."""
    scale = max(value.abs().max().item() for value in right.values())
    return max((left[name] - right[name]).abs().max().item() for name in right) / scale
