"""What the printed formula says of a whole run."""

import pytest

from oncurve.config import load_config
from oncurve.train import formula_of


def spoken(*words: str) -> str:
    return " ".join(formula_of(load_config(None, words)).split())


def test_samples_of_the_policy_itself_need_no_word() -> None:
    assert "off-policy" not in spoken()


@pytest.mark.parametrize(
    ("words", "drawn"),
    [
        (("--rollout.sampling.top_p", "0.9"), "drawn with top_p = 0.9, from"),
        (("--rollout.sampling.top_k", "20"), "drawn with top_k = 20, from"),
        (
            ("--rollout.sampling.min_p", "0.1", "--rollout.sampling.top_k", "5"),
            "drawn with top_k = 5, min_p = 0.1, from",
        ),
    ],
)
def test_a_filter_of_the_sampler_is_named_with_what_it_means(words: tuple[str, ...], drawn: str) -> None:
    assert drawn in spoken(*words)
    assert "the rollout is off-policy" in spoken(*words)
    assert spoken(*words, "--objective.preset", "ppo").count("off-policy") == 1
