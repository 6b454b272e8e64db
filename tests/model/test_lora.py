"""LoRA: starts equal to its base, trains only its own matrices."""

from pathlib import Path

import pytest
import torch

from oncurve.model import ModelSettings, Policy, fresh_embedded_policy, load_policy, save_policy
from oncurve.types import ModelError


def load(directory: Path, seed: int = 0, **lora: object) -> Policy:
    settings = ModelSettings.model_validate({"path": str(directory), "lora": lora})
    return load_policy(settings, seed=seed)


def trained(policy: Policy) -> dict[str, torch.Tensor]:
    return {name: value for name, value in policy.model.named_parameters() if value.requires_grad}


@pytest.fixture(scope="module")
def gpt2_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("gpt2")
    save_policy(fresh_embedded_policy(0), directory)
    return directory


@pytest.mark.parametrize("family", ["llama_directory", "gpt2_directory"])
def test_an_adapted_model_starts_equal_to_its_base(family: str, request: pytest.FixtureRequest) -> None:
    directory = request.getfixturevalue(family)
    ids = torch.tensor([[5, 9, 2, 40]])
    base = load_policy(ModelSettings(path=str(directory)), seed=0)
    with torch.no_grad():
        assert torch.equal(load(directory).model(ids).logits, base.model(ids).logits)


def test_only_the_matrices_are_trained_in_every_linear_layer_but_the_head(llama_directory: Path) -> None:
    # A layer: q 32 -> 32, k and v 32 -> 16, o 32 -> 32, gate and up 32 -> 48, down 48 -> 32. The matrices of rank r
    # have r * (in + out) values: r * (64 + 48 + 48 + 64 + 80 + 80 + 80) = 464 r; two layers.
    parameters = trained(load(llama_directory, rank=3))
    assert sum(value.numel() for value in parameters.values()) == 2 * 464 * 3
    assert all("lora_" in name for name in parameters)


def test_gpt2s_own_linear_class_is_adapted(gpt2_directory: Path) -> None:
    # A layer: c_attn 128 -> 384, c_proj 128 -> 128, c_fc 128 -> 512, c_proj 512 -> 128; three layers.
    parameters = trained(load(gpt2_directory, rank=2))
    assert sum(value.numel() for value in parameters.values()) == 3 * (512 + 256 + 640 + 640) * 2


def test_the_layers_can_be_chosen(llama_directory: Path) -> None:
    names = trained(load(llama_directory, target_modules=("q_proj", "v_proj")))
    assert {name.split(".")[-4] for name in names} == {"q_proj", "v_proj"}


def test_a_layer_that_does_not_exist_names_the_nearest(llama_directory: Path) -> None:
    with pytest.raises(
        ModelError, match=r"'q_porj', which is no linear layer.*Did you mean q_proj\? It has: q_proj, k_"
    ):
        load(llama_directory, target_modules=("v_proj", "q_porj"))


def test_the_difference_is_alpha_over_rank_times_b_a_x(llama_directory: Path) -> None:
    # Rank 1, A = [1, 2, 0, ...], B = [3, 0, ...], x = (1, 1, 0, ...): alpha / 1 * 3 * (1 + 2) = 9 alpha, in one output.
    for alpha in (2.0, 0.5):
        layer = load(llama_directory, rank=1, alpha=alpha).model.model.layers[0].mlp.up_proj
        a, b, x = torch.zeros(1, 32), torch.zeros(48, 1), torch.zeros(32)
        a[0, :2], b[0], x[:2] = torch.tensor([1.0, 2.0]), 3.0, 1.0
        layer.lora_A["default"].weight.data, layer.lora_B["default"].weight.data = a, b
        difference = layer(x) - layer.base_layer(x)
        assert difference[0].item() == pytest.approx(9 * alpha, abs=1e-5)
        assert difference[1:].eq(0).all()


def test_dropout_acts_in_training_mode_only(llama_directory: Path) -> None:
    policy = load(llama_directory, dropout=0.5)
    for name, parameter in trained(policy).items():
        if "lora_B" in name:
            torch.nn.init.ones_(parameter)
    ids = torch.tensor([[5, 9, 2, 40]])
    calm = policy.model(ids).logits
    assert torch.equal(policy.model(ids).logits, calm)
    assert not torch.equal(policy.model.train()(ids).logits, calm)


def test_the_seed_draws_the_matrices(llama_directory: Path) -> None:
    first, again, other = (trained(load(llama_directory, seed=seed)) for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)
