"""Term weight (float) to impact (int): the one rounding rule, and the table of scales.

    impact = round(weight * quant_range / weight_range)

halves to even, in float64 (a float32 product would move some halves), impacts of zero dropped. With 5 and 256, the
defaults of ``Policy``, this is Pyserini's ``splade`` class to the last integer.

A scale says its largest impact. For Pyserini's and x100 there is none to be clamped to: a clamp is a silent wrong value, and
none is needed, because log1p of the largest float32 is below 89, which is an impact of 4,543 or 8,873. What is refused
instead: NaN and infinite weights (Anserini would drop the rest of the file and exit 0), negative ones (the ReLU is
missing), and impacts above 65,535, which only an absurd scale can reach: Anserini indexes a term by repeating it impact
times in a string of at most 2^31 characters, and adds up scores in float32, exact below 2^24 only. A calibrated scale
promises that an impact fits in a byte, to engines that store it so, and was chosen from a sample: there a larger weight is
clamped to 255, and clamped weights are counted and said.

The scale is a property of an index and of the encoder that queries it; it is stored with the model (model/policy.py) and
with the index (marker.py). Which scale a calibrated one is, is found in calibrate.py.
"""

import dataclasses
from typing import Any

import numpy as np

from pyserini_rescale.errors import ConfigError, ModelError
from pyserini_rescale.model.policy import Policy

MOST = 2**16 - 1
BYTE = 2**8 - 1


@dataclasses.dataclass(frozen=True)
class Quantizer:
    """A scale with a name; ``limit`` is what larger impacts are clamped to, None where they are refused above MOST."""

    name: str
    weight_range: float
    quant_range: int
    limit: int | None = None

    def quantize(self, ids: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        """Return the ids of terms whose impact is above zero, their impacts, and how many of these were clamped."""
        if self.limit is None:
            impacts, clamped = quantize(weights, self.weight_range, self.quant_range), 0
        else:
            rounded = _rounded(weights, self.weight_range, self.quant_range)
            impacts, clamped = np.minimum(rounded, self.limit).astype(np.int64), int((rounded > self.limit).sum())
        kept = impacts > 0
        return ids[kept], impacts[kept], clamped


def from_json(value: Any) -> Quantizer:
    """Return the scale that a file of ours holds as an object; raise ValueError for what is none.

    Every key of ``Quantizer`` has to be there and no other: a key that is not known may change the impacts.
    """
    names = [field.name for field in dataclasses.fields(Quantizer)]
    if not isinstance(value, dict) or set(value) != set(names):
        raise ValueError(f"a scale has the keys {', '.join(names)}")
    tests = {
        "name": isinstance(value["name"], str),
        "weight_range": type(value["weight_range"]) in (int, float) and 0 < value["weight_range"] < 2**63,
        "quant_range": type(value["quant_range"]) is int and 0 < value["quant_range"] < 2**63,
        "limit": value["limit"] is None or (type(value["limit"]) is int and 0 < value["limit"] <= MOST),
    }
    wrong = [name for name, good in tests.items() if not good]
    if wrong:
        raise ValueError(f"the scale's {wrong[0]} cannot be {value[wrong[0]]!r:.80}")
    return Quantizer(**value)


def of_policy(policy: Policy) -> Quantizer:
    """Return the scale that a checkpoint carries, which its query encoder has too."""
    return Quantizer(MODEL, policy.weight_range, policy.quant_range)


MODEL, CALIBRATED = "model", "calibrated"
"""Names without numbers: the model's own scale (Pyserini's if it says nothing), and one that is found from a sample."""
FIXED = {one.name: one for one in (Quantizer("pyserini", 5.0, 256), Quantizer("x100", 1.0, 100))}
NAMES = (MODEL, *FIXED, CALIBRATED)


def same_scale(one: tuple[float, int], other: tuple[float, int]) -> bool:
    """Whether two pairs (weight_range, quant_range) turn a weight into the same impact."""
    left, right = one[1] * other[0], other[1] * one[0]
    return abs(left - right) <= 1e-9 * max(abs(left), abs(right))


def quantize(weights: np.ndarray, weight_range: float, quant_range: int) -> np.ndarray:
    """Return the impacts, int64, of term weights of any shape; zeros are kept, so that shapes agree.

    Raises ModelError for weights that are NaN, infinite or negative, ConfigError for impacts above ``MOST``.
    """
    impacts = _rounded(weights, weight_range, quant_range)
    if impacts.size and impacts.max() > MOST:
        raise ConfigError(
            f"an impact of {impacts.max():.0f} is above {MOST}: "
            f"quant_range {quant_range} over weight_range {weight_range:g} is too fine a scale"
        )
    return impacts.astype(np.int64)


def _rounded(weights: np.ndarray, weight_range: float, quant_range: int) -> np.ndarray:
    """Return weights by a scale, rounded, as float64; raise ModelError for what is no weight."""
    weights = np.asarray(weights)
    if weights.size and not (np.isfinite(weights.max()) and weights.min() >= 0):
        raise ModelError("a term weight is NaN, infinite or negative; the model is damaged, or its numbers overflow")
    return np.rint(weights.astype(np.float64) * quant_range / weight_range)


def sparse_impacts(vectors: np.ndarray, weight_range: float, quant_range: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return for each row of ``vectors`` (B, V) the ids of its terms, ascending, and their impacts, all above zero."""
    result = []
    for vector in vectors:
        ids = np.flatnonzero(vector)  # NaN and negative weights are among them, and refused
        impacts = quantize(vector[ids], weight_range, quant_range)
        kept = impacts > 0
        result.append((ids[kept], impacts[kept]))
    return result
