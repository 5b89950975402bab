"""A byte-sized scale from observed weights, and what a scale costs: how much of the ranking by float scores is kept.

The sample's documents are ranked for each of its queries by the dot product of weights, and by that of impacts. ``overlap``
is the mean share of the first ten by weights that are among the first ten by impacts; ``kendall`` the mean rank
correlation (tau-b, which counts ties) of both scores over the first hundred by weights. 1 and 1 is no loss.

Candidates for the scale are the largest weight of the sample, which clamps nothing there, and two high quantiles, which
spend the 255 steps on the weights that are many. The one that keeps most of the ranking is taken; of equals, the first.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyserini_rescale.encode.quantize import BYTE, CALIBRATED, FIXED, Quantizer
from pyserini_rescale.errors import ConfigError

Weights = tuple[np.ndarray, np.ndarray]  # ids, float32 weights
FIRST, DEPTH = 10, 100
_QUANTILES = (1.0, 0.9999, 0.999)


def calibrate(documents: Sequence[Weights], queries: Sequence[Weights]) -> tuple[Quantizer, dict[str, Any]]:
    """Return the scale, and the record of how it was found.

    Raises ConfigError where the sample has no weights, ModelError for weights that are no numbers.
    """
    every = np.concatenate([weights for _, weights in (*documents, *queries)] or [np.zeros(0)])
    if not every.size or not every.max() > 0:
        raise ConfigError("the sample has no active term: a scale cannot be calibrated on it")
    candidates: dict[float, Quantizer] = {}
    for quantile in _QUANTILES:
        weight = float(np.ceil(np.quantile(every, quantile) * 1000) / 1000)  # a number that can be typed
        candidates.setdefault(weight, Quantizer(CALIBRATED, weight, BYTE, limit=BYTE))
    found = [(quantizer, ranking_kept(documents, queries, quantizer)) for quantizer in candidates.values()]
    best, _ = max(found, key=lambda pair: (round(pair[1]["overlap"] or 0, 3), round(pair[1]["kendall"] or 0, 3)))
    record = {
        "documents": len(documents),
        "queries": len(queries),
        "largest_weight": float(every.max()),
        "candidates": [{"weight_range": quantizer.weight_range, **kept} for quantizer, kept in found],
        "others": {name: ranking_kept(documents, queries, quantizer) for name, quantizer in FIXED.items()},
    }
    return best, record


def ranking_kept(
    documents: Sequence[Weights], queries: Sequence[Weights], quantizer: Quantizer
) -> dict[str, float | None]:
    """Return {"overlap", "kendall", "clamped"} of impacts against weights; ``clamped`` is the share of weights.

    overlap and kendall are None, not measured, where no query finds two documents.
    """
    terms = np.unique(np.concatenate([ids for ids, _ in queries] or [np.zeros(0, dtype=np.int32)]))
    exact, rounded = (
        _matrix(queries, terms, one) @ _matrix(documents, terms, one).T for one in (None, quantizer)
    )  # (queries, documents)
    overlaps, correlations = [], []
    for weights, impacts in zip(exact, rounded, strict=True):
        by_weight = np.argsort(-weights, kind="stable")
        by_weight = by_weight[weights[by_weight] > 0][:DEPTH]
        if len(by_weight) < 2:
            continue
        first = min(FIRST, len(by_weight))
        by_impact = np.argsort(-impacts, kind="stable")[:first]
        overlaps.append(len(np.intersect1d(by_weight[:first], by_impact)) / first)
        correlations.append(_tau_b(weights[by_weight], impacts[by_weight]))
    clamped = sum(quantizer.quantize(ids, weights)[2] for ids, weights in documents)
    return {
        "overlap": float(np.mean(overlaps)) if overlaps else None,
        "kendall": float(np.mean(correlations)) if correlations else None,
        "clamped": clamped / max(1, sum(len(ids) for ids, _ in documents)),
    }


def _matrix(vectors: Sequence[Weights], terms: np.ndarray, quantizer: Quantizer | None) -> np.ndarray:
    """Return the vectors over ``terms``, (vectors, terms), float64: weights, or impacts of ``quantizer``."""
    found = np.zeros((len(vectors), len(terms)))
    for row, (ids, weights) in enumerate(vectors):
        values: np.ndarray = weights
        if quantizer is not None:
            ids, values, _ = quantizer.quantize(ids, weights)
        known = np.isin(ids, terms)
        found[row, np.searchsorted(terms, ids[known])] = values[known]
    return found


def _tau_b(one: np.ndarray, other: np.ndarray) -> float:
    """Return Kendall's tau-b of two lists of scores; 0 where one of them is all ties."""
    left, right = (np.sign(scores[:, None] - scores[None, :]) for scores in (one, other))
    pairs = np.count_nonzero(left) * np.count_nonzero(right)
    return float((left * right).sum() / np.sqrt(pairs)) if pairs else 0.0
