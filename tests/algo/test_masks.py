"""Where completions end."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oncurve.algo import completion_mask


def test_every_terminator_ends_a_completion_and_stays_in_it() -> None:
    ids = torch.tensor([[5, 2, 3, 0], [3, 5, 5, 2], [5, 5, 5, 5], [5, 5, 5, 3]])
    found = completion_mask(ids, [2, 3])
    assert found.lengths.tolist() == [2, 1, 4, 4]
    assert found.is_truncated.tolist() == [False, False, True, False]
    assert found.without_truncated().sum(dim=1).tolist() == [2, 1, 0, 4]
    assert found.loss_mask[0].tolist() == [True, True, False, False]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_the_first_terminator_by_position_decides(ids: list[int]) -> None:
    found = completion_mask(torch.tensor([ids]), {0})
    end = ids.index(0) + 1 if 0 in ids else len(ids)
    assert found.loss_mask[0].tolist() == [position < end for position in range(len(ids))]
    assert found.is_truncated[0].item() is (0 not in ids)


def test_completions_of_length_zero_are_truncated_ones() -> None:
    found = completion_mask(torch.zeros(2, 0, dtype=torch.int64), [0])
    assert found.lengths.tolist() == [0, 0]
    assert found.is_truncated.tolist() == [True, True]


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot learn to stop"):
        completion_mask(torch.zeros(1, 2, dtype=torch.int64), [])
    with pytest.raises(ValueError, match=r"ids must be \[B, T\]"):
        completion_mask(torch.zeros(2, dtype=torch.int64), [0])
