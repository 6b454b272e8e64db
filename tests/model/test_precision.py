"""Which precision and which attention code."""

import pytest
import torch

from oncurve.model import ModelSettings, settled
from oncurve.model.precision import (
    SMALL_MODEL_PARAMETERS,
    WORTH_ROUNDING,
    bfloat16_speedup,
    choose_attention,
    choose_device,
    choose_dtype,
    cpu_has_bfloat16,
    has_fast_bfloat16,
    read_cpuinfo,
)
from oncurve.types import ModelError

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("cpuinfo", "expected"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx512f avx512_bf16 avx512vl\n", True),
        ("processor\t: 0\nflags\t\t: fpu amx_bf16\n", True),
        ("processor\t: 0\nFeatures\t: fp asimd bf16 i8mm\n", True),
        ("processor\t: 0\nflags\t\t: fpu avx2 avx512f\n", False),
        ("model name\t: avx512_bf16 in name only\nflags\t\t: fpu\nbugs\t: avx512_bf16\n", False),
        ("", False),
    ],
)
def test_the_flags_of_the_processor_decide(cpuinfo: str, expected: bool) -> None:
    assert cpu_has_bfloat16(cpuinfo) is expected


def test_auto_is_bfloat16_only_where_it_is_fast_and_the_model_is_not_small() -> None:
    small, large = SMALL_MODEL_PARAMETERS - 1, SMALL_MODEL_PARAMETERS
    assert choose_dtype("auto", num_parameters=large, has_bfloat16=True) is torch.bfloat16
    assert choose_dtype("auto", num_parameters=small, has_bfloat16=True) is torch.float32
    assert choose_dtype("auto", num_parameters=large, has_bfloat16=False) is torch.float32


def test_a_stated_precision_is_taken_as_it_is() -> None:
    assert choose_dtype("bfloat16", num_parameters=1, has_bfloat16=False) is torch.bfloat16
    assert choose_dtype("float32", num_parameters=10**12, has_bfloat16=True) is torch.float32


def test_a_stated_attention_is_taken_as_it_is() -> None:
    assert choose_attention("sdpa", torch.bfloat16, CPU) == "sdpa"
    assert choose_attention("eager", torch.float32, CPU) == "eager"
    assert choose_attention("auto", torch.bfloat16, CPU) == "eager"
    assert choose_attention("auto", torch.float32, CPU) == "sdpa"


def test_a_gpu_takes_fused_attention_in_bfloat16_too() -> None:
    assert choose_attention("auto", torch.bfloat16, torch.device("cuda")) == "sdpa"


def test_the_device_is_the_gpu_where_torch_can_use_one() -> None:
    assert choose_device("cpu").type == "cpu"
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
def test_a_gpu_that_is_not_there_is_asked_for_in_vain() -> None:
    with pytest.raises(ModelError, match=r'torch can use no GPU here.*model\.device = "auto"'):
        choose_device("cuda")


def test_the_gain_of_bfloat16_is_measured_once_and_decides_with_the_hardware() -> None:
    measured = bfloat16_speedup()
    assert measured > 0
    assert bfloat16_speedup() == measured  # a second measurement would not agree to the last digit
    assert has_fast_bfloat16(CPU) == (cpu_has_bfloat16(read_cpuinfo()) and measured >= WORTH_ROUNDING)


def test_settled_settings_say_what_auto_means_and_leave_the_rest() -> None:
    assert settled(ModelSettings(path="embedded")) == ModelSettings(path="embedded", dtype="float32")  # 0.6 M weights
    assert settled(ModelSettings(path="embedded", dtype="bfloat16")).dtype == "bfloat16"
