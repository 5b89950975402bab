"""Weight to impact: the rule on numbers worked out by hand, against Python's own rounding, and what is refused."""

import numpy as np
import pytest

from pyserini_rescale.encode.quantize import MOST, quantize, sparse_impacts
from pyserini_rescale.errors import ConfigError, ModelError
from pyserini_rescale.model.policy import Policy


def test_numbers_worked_out_by_hand():
    #              0     rounds to 0   half, to 0  to 1   1.5, to 2    2.5, to 2   3.5, to 4   5 is 256
    weights = [0.0, 0.009, 5 / 512, 0.0098, 15 / 512, 25 / 512, 35 / 512, 5.0]
    assert quantize(np.array(weights, np.float32), 5.0, 256).tolist() == [0, 0, 0, 1, 2, 2, 4, 256]
    assert quantize(np.array([0.004, 0.0051, 1.0, 2.344], np.float32), 1.0, 100).tolist() == [0, 1, 100, 234]


def test_equals_pyserini_for_every_kind_of_weight():
    """round(w / 5 * 256) of Python floats, as its ``splade`` class writes it; the halves are among the weights."""
    generator = np.random.default_rng(0)
    halves = (2 * np.arange(600) + 1) * 5 / 512
    near = np.concatenate([np.nextafter(halves.astype(np.float32), np.float32(side)) for side in (0, 9)])
    weights = np.concatenate([generator.exponential(1, 20000), halves, near, [0, 1e-30, 88.7]]).astype(np.float32)
    policy = Policy()
    got = quantize(weights, policy.weight_range, policy.quant_range)
    assert got.dtype == np.int64
    assert got.tolist() == [round(float(weight) / 5 * 256) for weight in weights]


def test_float32_would_move_halves():
    """Why float64: the same rule in float32 gives other integers."""
    weights = ((np.arange(10_000) + 0.5) * 3 / 100).astype(np.float32)  # next to a half
    in_float32 = np.rint(weights * np.float32(100) / np.float32(3))
    assert (in_float32 != quantize(weights, 3.0, 100)).any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, -0.001])
def test_weights_that_are_none_are_refused(bad):
    with pytest.raises(ModelError, match="NaN, infinite or negative"):
        quantize(np.array([1.0, bad], np.float32), 5.0, 256)
    with pytest.raises(ModelError, match="NaN, infinite or negative"):
        sparse_impacts(np.array([[1.0, 2.0], [0.0, bad]], np.float32), 5.0, 256)


def test_the_largest_logit_there_is_needs_no_clamp():
    largest = np.log1p(np.finfo(np.float32).max, dtype=np.float64)
    assert quantize(np.array([largest]), 5.0, 256).tolist() == [4543]


def test_an_absurd_scale_is_refused():
    assert quantize(np.array([1.0]), 1.0, MOST).tolist() == [MOST]
    with pytest.raises(ConfigError, match="too fine a scale"):
        quantize(np.array([1.0]), 1.0, MOST + 1)


def test_shapes_are_kept_and_nothing_gives_nothing():
    assert quantize(np.zeros((2, 3)), 5.0, 256).shape == (2, 3)
    assert quantize(np.zeros(0), 5.0, 256).tolist() == []


def test_sparse_impacts_drop_zeros_and_only_those():
    vectors = np.array([[0, 0.001, 1, 5], [0, 0, 0, 0], [0.001, 0, 0, 0]], np.float32)
    got = [(ids.tolist(), impacts.tolist()) for ids, impacts in sparse_impacts(vectors, 5.0, 256)]
    assert got == [([2, 3], [51, 256]), ([], []), ([], [])]
