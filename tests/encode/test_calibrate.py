"""The table of scales, the calibrated one, and how much of a ranking a scale keeps."""

import numpy as np
import pytest

from pyserini_rescale.encode.calibrate import _tau_b, calibrate, ranking_kept
from pyserini_rescale.encode.quantize import BYTE, FIXED, NAMES, Quantizer, of_policy, same_scale
from pyserini_rescale.errors import ConfigError, ModelError
from pyserini_rescale.model.policy import Policy


def vectors(number: int, seed: int, scale: float = 1.0, terms: int = 12) -> list:
    chance = np.random.default_rng(seed)
    found = []
    for _ in range(number):
        ids = np.sort(chance.choice(200, terms, replace=False)).astype(np.int32)
        found.append((ids, (chance.gamma(2.0, 0.4, terms) * scale).astype(np.float32)))
    return found


def test_the_table():
    assert NAMES == ("model", "pyserini", "x100", "calibrated")
    assert of_policy(Policy()) == Quantizer("model", 5.0, 256)
    assert (FIXED["pyserini"].weight_range, FIXED["pyserini"].quant_range) == (
        Policy().weight_range,
        Policy().quant_range,
    )
    ids, weights = np.array([4, 5, 6]), np.array([1.0, 0.004, 0.006], dtype=np.float32)
    for name, expected in (("x100", {4: 100, 6: 1}), ("pyserini", {4: 51})):
        kept, impacts, clamped = FIXED[name].quantize(ids, weights)
        assert dict(zip(kept.tolist(), impacts.tolist(), strict=True)) == expected and clamped == 0


def test_only_a_scale_with_a_limit_clamps_and_says_how_often():
    ids, weights = np.array([1, 2, 3]), np.array([1.0, 2.0, 80.0], dtype=np.float32)
    kept, impacts, clamped = Quantizer("calibrated", 2.0, 255, limit=255).quantize(ids, weights)
    assert impacts.tolist() == [128, 255, 255] and clamped == 1 and kept.tolist() == [1, 2, 3]
    assert FIXED["x100"].quantize(ids, weights)[1].tolist() == [100, 200, 8000]
    assert Quantizer("calibrated", 0.01, 255, limit=255).quantize(ids, weights)[1:][0].tolist() == [255] * 3
    with pytest.raises(ModelError, match="NaN"):
        Quantizer("calibrated", 2.0, 255, limit=255).quantize(ids, np.array([1.0, np.inf, 2.0]))


def test_scales_are_compared_by_what_they_do():
    assert same_scale((5.0, 256), (10.0, 512)) and not same_scale((5.0, 256), (1.0, 100))
    assert not same_scale((5.0, 256), (5.0, 255))


def test_a_calibrated_scale_uses_the_byte():
    documents, queries = vectors(300, 1), vectors(40, 2)
    scale, record = calibrate(documents, queries)
    largest = max(float(weights.max()) for _, weights in (*documents, *queries))
    assert scale.quant_range == scale.limit == BYTE and 0 < scale.weight_range <= largest + 0.001
    impacts = np.concatenate([scale.quantize(*one)[1] for one in documents])
    assert impacts.max() == BYTE or impacts.max() > 200
    chosen = next(one for one in record["candidates"] if one["weight_range"] == scale.weight_range)
    assert chosen["overlap"] == max(one["overlap"] for one in record["candidates"]) > 0.95
    assert chosen["kendall"] > 0.95
    assert set(record["others"]) == set(FIXED) and record["documents"] == 300 and record["queries"] == 40


def test_small_weights_lose_less_by_a_calibrated_scale_than_by_pyserinis():
    """A model whose largest weight is 0.2 has ten steps of 256/5, and 255 of its own."""
    documents, queries = vectors(300, 3, 0.05), vectors(40, 4, 0.05)
    scale, record = calibrate(documents, queries)
    ours, theirs = ranking_kept(documents, queries, scale), record["others"]["pyserini"]
    assert ours["kendall"] > theirs["kendall"] + 0.05 and ours["overlap"] > theirs["overlap"]


def test_no_loss_is_one_and_a_coarse_scale_is_less():
    documents, queries = vectors(200, 5), vectors(30, 6)
    fine = ranking_kept(documents, queries, Quantizer("x", 1.0, 60_000 // 10))
    assert fine["overlap"] > 0.99 and fine["kendall"] > 0.999 and fine["clamped"] == 0
    coarse = ranking_kept(documents, queries, Quantizer("x", 1.0, 1))
    assert coarse["overlap"] < 0.9 and coarse["kendall"] < 0.9
    assert ranking_kept(documents, queries, Quantizer("x", 0.01, 255, limit=255))["clamped"] > 0.9


def test_kendalls_tau_is_scipys():
    stats = pytest.importorskip("scipy.stats")
    chance = np.random.default_rng(7)
    for _ in range(20):
        one, other = chance.integers(0, 12, 40), chance.integers(0, 12, 40)
        assert _tau_b(one, other) == pytest.approx(stats.kendalltau(one, other).statistic)


def test_a_ranking_that_no_query_has_is_not_measured():
    one = [(np.array([1], dtype=np.int32), np.array([0.5], dtype=np.float32))]
    for documents, queries in ((one, one), (one, []), (one * 3, [(np.array([2], dtype=np.int32), one[0][1])])):
        scale, record = calibrate(documents, queries)
        assert scale.weight_range == 0.5
        for kept in (*record["candidates"], *record["others"].values()):
            assert kept["overlap"] is None and kept["kendall"] is None


def test_a_sample_without_weights_is_refused():
    nothing = (np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float32))
    for documents in ([], [nothing]):
        with pytest.raises(ConfigError, match="no active term"):
            calibrate(documents, [nothing])
