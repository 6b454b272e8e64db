"""Rows to micro-batches."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oncurve.learner.packing import Row, pack

CPU = torch.device("cpu")


def test_two_rows_on_paper():
    # Row 0: prompt 7 8, completion 9. Row 1: prompt 4, completion 5 6 3; it is longer, so it comes first. The last
    # token of a row predicts nothing and is not run.
    [batch] = pack([Row((7, 8), (9,)), Row((4,), (5, 6, 3))], token_budget=8, device=CPU)
    assert batch.input_ids.tolist() == [[4, 5, 6], [7, 8, 0]]
    assert (batch.position_ids, batch.subtree_ends, batch.is_visible()) == (None, None, None)
    assert batch.targets.tolist() == [5, 6, 3, 9]
    assert batch.predictors.tolist() == [0, 1, 2, 3 + 1]
    assert (batch.members, batch.lengths, batch.first_predictor) == ((1, 0), (3, 1), 0)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), max_size=12),
    st.integers(1, 60),
)
def test_every_completion_token_is_predicted_once_by_the_token_before_it(sizes, budget):
    rows = [Row(tuple(range(100, 100 + p)), tuple(range(100 + p, 100 + p + n))) for p, n in sizes]
    batches = pack(rows, token_budget=budget, device=CPU)
    seen = {}
    for batch in batches:
        assert batch.input_ids.numel() <= budget or len(batch.members) == 1
        before = batch.input_ids.flatten()[batch.predictors]
        assert torch.equal(before + 1, batch.targets)  # ids of a row count upwards
        assert (batch.predictors % batch.input_ids.shape[1]).min() == batch.first_predictor
        seen |= zip(batch.members, torch.split(batch.targets, list(batch.lengths)), strict=True)
    assert {i: tuple(t.tolist()) for i, t in seen.items()} == {
        i: r.token_ids for i, r in enumerate(rows) if r.token_ids
    }


def test_an_empty_prompt_is_refused():
    with pytest.raises(ValueError, match="row 1 has an empty prompt"):
        pack([Row((1,), (2,)), Row((), (2,))], token_budget=8, device=CPU)
