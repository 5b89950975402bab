"""Pruning: which weights stay."""

import numpy as np
import pytest

from pyserini_rescale.encode.prune import Pruning
from pyserini_rescale.errors import ConfigError

IDS = np.array([2, 3, 5, 7, 11])
WEIGHTS = np.array([0.5, 2.0, 0.1, 2.0, 1.0], dtype=np.float32)


def kept(*given) -> list[int]:
    ids, weights = Pruning(*given).apply(IDS, WEIGHTS)
    assert weights.tolist() == [dict(zip(IDS.tolist(), WEIGHTS.tolist(), strict=True))[one] for one in ids.tolist()]
    return ids.tolist()


def test_nothing_is_pruned_unless_asked():
    assert kept() == IDS.tolist()


def test_the_largest_stay_in_the_order_of_ids():
    assert kept(3) == [3, 7, 11]
    assert kept(1) == [3]  # of equal weights the lower id
    assert kept(99) == IDS.tolist()


def test_a_share_of_the_largest():
    assert kept(None, 0.25) == [2, 3, 7, 11]
    assert kept(None, 1.0) == [3, 7]
    assert kept(None, 0.0) == IDS.tolist()
    assert kept(3, 0.5) == [3, 7, 11] and kept(2, 0.5) == [3, 7]


def test_an_empty_vector_stays_empty():
    nothing = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float32)
    assert all(not len(part) for part in Pruning(3, 0.5).apply(*nothing))


@pytest.mark.parametrize("given", [(0,), (-1,), (None, -0.1), (None, 1.1), (None, float("nan"))])
def test_options_that_cannot_be(given):
    with pytest.raises(ConfigError):
        Pruning(*given)
