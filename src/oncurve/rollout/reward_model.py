"""A reward model as a part of the reward: any Hugging Face sequence classifier in a directory. Fallible.

It lives here and not beside the other verifiers because it needs torch. Shapes: B texts of equal length, T tokens,
C outputs of the head.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from oncurve.model.border import reading
from oncurve.model.checks import check_finite, check_vocabulary
from oncurve.model.load import LOCAL, load_config
from oncurve.model.precision import choose_dtype, has_fast_bfloat16
from oncurve.types import ConfigError, Message, ModelError, Verdict
from oncurve.verify import Item, Verifier
from oncurve.verify.items import correct, no_verdict, wrong
from oncurve.verify.judges import REWARD_MODEL, RewardModelSettings
from oncurve.verify.judges.fence import defused

_NO_PADDING = -1
"""Texts of one pass are equally long, so every token counts; the id of no token says so to decoders."""


class RewardModel:
    """Scores completions by a classifier; the weights are loaded by the first use.

    The text is the chat template's where the tokenizer has one, else prompt and completion as a pair. Special tokens
    that a completion spells out are broken up first, so that it cannot write turns of its own.

    No verdict: the output is NaN or infinite (``bad_value``) or outside ``low`` to ``high`` (``off_range``).

    Raises:
        ConfigError: the settings do not fit the model's head.
        ModelError: the directory holds no model with a trained head.
    """

    name = REWARD_MODEL

    def __init__(self, settings: RewardModelSettings) -> None:
        self.settings = settings
        self.num_probe_rows = settings.probe_rows
        self._directory = settings.path.expanduser()
        if not (self._directory / "config.json").is_file():
            raise ModelError(
                f"reward model: there is no config.json in {self._directory.absolute()}. Set the option path to a "
                "directory with config, weights and tokenizer of a sequence classifier. Models are never downloaded."
            )
        self._config = load_config(self._directory)
        self._label = _label_index(self._config, settings)
        has_logit = self._label is None and settings.scale == "logit"
        self.reward_range = (settings.low, settings.high) if has_logit else (0.0, 1.0)
        self._loaded: tuple[PreTrainedModel, PreTrainedTokenizerBase] | None = None

    def judge(self, items: Sequence[Item]) -> list[Verdict]:
        """One verdict an item; what else is in the batch changes nothing but the last bits.

        Raises:
            ModelError: the weights or the tokenizer cannot be loaded.
        """
        if not items:
            return []
        encoded = [self._encode(item) for item in items]
        verdicts: dict[int, Verdict] = {}
        for places in self._batches([len(each["input_ids"]) for each in encoded]):
            rewards = self._rewards([encoded[place] for place in places])
            verdicts |= {place: self._verdict(reward) for place, reward in zip(places, rewards, strict=True)}
        return [verdicts.get(place) or self._too_long(encoded[place]) for place in range(len(items))]

    def _encode(self, item: Item) -> dict[str, list[int]]:
        _, tokenizer = self._load()
        prompt, answer = item.task.prompt, _harmless(item.text, tokenizer)
        if tokenizer.chat_template is None:
            text = prompt if isinstance(prompt, str) else "\n".join(turn.content for turn in prompt)
            return dict(tokenizer(_harmless(text, tokenizer), answer))
        turns = (Message(role="user", content=prompt),) if isinstance(prompt, str) else prompt
        chat = [{"role": turn.role, "content": _harmless(turn.content, tokenizer)} for turn in turns]
        chat.append({"role": "assistant", "content": answer})
        return {"input_ids": cast("list[int]", tokenizer.apply_chat_template(chat, return_dict=False))}

    def _batches(self, lengths: Sequence[int]) -> list[list[int]]:
        """Places of the texts that are short enough, by length, so that nothing is padded."""
        by_length: dict[int, list[int]] = {}
        for place, length in enumerate(lengths):
            if 0 < length <= self.settings.max_tokens:
                by_length.setdefault(length, []).append(place)
        size = self.settings.batch_size
        return [places[start : start + size] for places in by_length.values() for start in range(0, len(places), size)]

    def _rewards(self, batch: Sequence[Mapping[str, list[int]]]) -> list[float]:
        model, _ = self._load()
        inputs = {name: torch.tensor([each[name] for each in batch]) for name in batch[0] if name != "attention_mask"}
        with torch.inference_mode():
            logits: Tensor = model(**inputs, attention_mask=torch.ones_like(inputs["input_ids"])).logits.float()
        if self._label is not None:
            values = logits.softmax(-1)[:, self._label]
        else:
            values = logits[:, 0].sigmoid() if self.settings.scale == "sigmoid" else logits[:, 0]
        return [float(value) for value in values]

    def _verdict(self, reward: float) -> Verdict:
        low, high = self.reward_range
        if not abs(reward) < float("inf"):
            return no_verdict("bad_value", f"fallible reward model: its output is {reward}")
        if not low <= reward <= high:
            return no_verdict("off_range", f"fallible reward model: {reward:.4g} is outside {low:g} to {high:g}")
        evidence = f"fallible reward model: {reward:.4g} of {low:g} to {high:g}"
        return correct(evidence, reward) if reward >= self.settings.correct_at else wrong(evidence, reward)

    def _too_long(self, encoded: Mapping[str, list[int]]) -> Verdict:
        evidence = (
            f"fallible reward model: {len(encoded['input_ids'])} tokens, 1 to {self.settings.max_tokens} are scored"
        )
        return wrong(evidence, self.reward_range[0])

    def _load(self) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        if self._loaded is None:
            with reading(f"the tokenizer in {self._directory}"):
                tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(self._directory, **LOCAL)
            model = _load_model(self._directory, self._config, self.settings)
            check_vocabulary(model, tokenizer, self._directory)
            self._loaded = model, tokenizer
        return self._loaded


NETWORK_VERIFIERS: Mapping[str, Callable[[Any], Verifier]] = {REWARD_MODEL: RewardModel}
"""Verifiers that run a network, by name: hand them to ``Scorer`` as ``builders``."""


def _load_model(directory: Path, config: PreTrainedConfig, settings: RewardModelSettings) -> PreTrainedModel:
    options: dict[str, Any] = {**LOCAL, "output_loading_info": True, "dtype": _dtype(config, settings, directory)}
    with reading(f"the sequence classifier in {directory}"), torch.random.fork_rng(devices=[]):
        loaded: Any = AutoModelForSequenceClassification.from_pretrained(directory, **options)
    model: PreTrainedModel = loaded[0]
    missing = sorted(str(name) for name in loaded[1]["missing_keys"])
    if missing:
        raise ModelError(
            f"The weights in {directory} lack {', '.join(missing[:3])}; these would be random numbers, and so would "
            "the rewards. A language model or an encoder without a trained head is no reward model."
        )
    check_finite(model, directory)
    for part in (model.config, model.config.get_text_config()):
        part.pad_token_id = _NO_PADDING
    frozen: PreTrainedModel = model.train(False).requires_grad_(False)
    return frozen


def _dtype(config: PreTrainedConfig, settings: RewardModelSettings, directory: Path) -> torch.dtype:
    with reading(f"{directory / 'config.json'} as a sequence classifier"), torch.device("meta"):
        model = AutoModelForSequenceClassification.from_config(config)  # type: ignore[no-untyped-call]
    size = sum(parameter.numel() for parameter in model.parameters())
    return choose_dtype(settings.dtype, num_parameters=size, has_bfloat16=has_fast_bfloat16(torch.device("cpu")))


def _label_index(config: PreTrainedConfig, settings: RewardModelSettings) -> int | None:
    """Number of the good class; None of a model with one output."""
    num_labels = config.num_labels or 0
    if num_labels == 1:
        if settings.label:
            raise ConfigError(
                f"reward model {settings.path}: it has one output, so label {settings.label!r} names nothing"
            )
        return None
    names = {str(name): int(index) for name, index in (config.label2id or {}).items()}
    index = names.get(settings.label, int(settings.label) if settings.label.isdecimal() else -1)
    if not 0 <= index < num_labels:
        raise ConfigError(
            f"reward model {settings.path}: it has {num_labels} outputs, and the option label says which one is good: "
            f"one of {', '.join(names)}, or a number from 0; got {settings.label!r}"
        )
    return index


def _harmless(text: str, tokenizer: PreTrainedTokenizerBase) -> str:
    """The text with special tokens that it spells out broken up by a blank."""
    text = defused(text)
    for token in tokenizer.all_special_tokens:
        if len(token) > 1:
            text = text.replace(token, f"{token[0]} {token[1:]}")
    return text
