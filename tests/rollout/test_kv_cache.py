"""Rows that move from one cache to another."""

import pytest
import torch

from oncurve.rollout.kv_cache import Block, empty_buffers, gather_buffers, spread_row


@pytest.fixture
def fresh_memory_is_nan():
    """New tensors hold NaN, as reused memory may."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def filled(rows: list[list[float]], capacity: int):
    """A cache of two layers, one head and head width 1, that holds these numbers (and their negatives as values)."""
    states = torch.tensor(rows)[:, None, :, None]
    cache = empty_buffers(2, capacity)
    for layer in range(2):
        cache.update(states, -states, layer)
    return cache


def contents(cache, layer: int) -> list[list[float]]:
    used = cache.layers[layer].keys[:, 0, : cache.get_seq_length(), 0]
    assert torch.equal(cache.layers[layer].values[:, 0, : cache.get_seq_length(), 0], -used)
    return used.tolist()


def test_an_update_appends_columns_and_returns_all_in_use():
    cache = filled([[1.0, 2.0]], capacity=4)
    keys, values = cache.update(torch.full((1, 1, 1, 1), 3.0), torch.full((1, 1, 1, 1), -3.0), 0)
    assert keys.flatten().tolist() == [1.0, 2.0, 3.0]
    assert values.flatten().tolist() == [-1.0, -2.0, -3.0]
    assert cache.get_seq_length(0) == 3
    assert cache.get_mask_sizes(1, 0) == (4, 0)


@pytest.mark.usefixtures("fresh_memory_is_nan")
def test_rows_of_two_caches_end_at_one_column():
    wide, narrow = filled([[0.0, 2.0, 3.0], [4.0, 5.0, 6.0], [0.0, 0.0, 9.0]], 5), filled([[7.0]], 1)
    cache = gather_buffers(
        [Block(cache=wide, rows=torch.tensor([2, 0])), Block(cache=narrow, rows=torch.tensor([0, 0]))],
        width=2,
        capacity=3,
    )
    for layer in range(2):
        # The wide rows lose their first column, padding of both; the narrow row is repeated behind a zero.
        assert contents(cache, layer) == [[0.0, 9.0], [2.0, 3.0], [0.0, 7.0], [0.0, 7.0]]
        assert cache.layers[layer].keys.shape == (4, 1, 3, 1)


def test_a_row_is_repeated_at_several_starts():
    # The source has a spare column, and is longer than what the shifted rows have room for.
    cache = spread_row(filled([[1.0, 2.0, 3.0]], 4), torch.tensor([0, 2, 5]), width=3, capacity=6)
    for layer in range(2):
        assert contents(cache, layer) == [[1.0, 2.0, 3.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
        assert cache.layers[layer].keys.shape == (3, 1, 6, 1)
    shifted = spread_row(filled([[1.0, 2.0, 3.0]], 3), torch.tensor([1]), width=3, capacity=3)
    assert contents(shifted, 0) == [[1.0, 1.0, 2.0]]


def test_only_a_consumed_cache_gives_up_its_storage():
    kept, consumed = filled([[1.0]], 1), filled([[2.0]], 1)
    blocks = [
        Block(cache=consumed, rows=torch.tensor([0]), is_consumed=True),
        Block(cache=kept, rows=torch.tensor([0])),
    ]
    assert contents(gather_buffers(blocks, width=1, capacity=1), 1) == [[2.0], [1.0]]
    assert contents(kept, 1) == [[1.0]]
    assert consumed.get_seq_length() == 0
