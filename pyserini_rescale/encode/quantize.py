"""Term weight (float) to impact (int): the one rounding rule.

    impact = round(weight * quant_range / weight_range)

halves to even, in float64 (a float32 product would move some halves), impacts of zero dropped. With 5 and 256, the
defaults of ``Policy``, this is Pyserini's ``splade`` class to the last integer.

There is no clamp: a clamp is a silent wrong value, and none is needed, because log1p of the largest float32 is below
89, which is an impact of 4,543 by default. What is refused instead: NaN and infinite weights (Anserini would drop the
rest of the file and exit 0), negative ones (the ReLU is missing), and impacts above 65,535, which only an absurd scale
can reach: Anserini indexes a term by repeating it impact times in a string of at most 2^31 characters, and adds up
scores in float32, exact below 2^24 only.

The scale is a property of an index and of the encoder that queries it; it is stored with the model (model/policy.py).
"""

import numpy as np

from pyserini_rescale.errors import ConfigError, ModelError

MOST = 2**16 - 1


def quantize(weights: np.ndarray, weight_range: float, quant_range: int) -> np.ndarray:
    """Return the impacts, int64, of term weights of any shape; zeros are kept, so that shapes agree.

    Raises ModelError for weights that are NaN, infinite or negative, ConfigError for impacts above ``MOST``.
    """
    weights = np.asarray(weights)
    if weights.size and not (np.isfinite(weights.max()) and weights.min() >= 0):
        raise ModelError("a term weight is NaN, infinite or negative; the model is damaged, or its numbers overflow")
    impacts = np.rint(weights.astype(np.float64) * quant_range / weight_range)
    if weights.size and impacts.max() > MOST:
        raise ConfigError(
            f"an impact of {impacts.max():.0f} is above {MOST}: "
            f"quant_range {quant_range} over weight_range {weight_range:g} is too fine a scale"
        )
    return impacts.astype(np.int64)


def sparse_impacts(vectors: np.ndarray, weight_range: float, quant_range: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return for each row of ``vectors`` (B, V) the ids of its terms, ascending, and their impacts, all above zero."""
    result = []
    for vector in vectors:
        ids = np.flatnonzero(vector)  # NaN and negative weights are among them, and refused
        impacts = quantize(vector[ids], weight_range, quant_range)
        kept = impacts > 0
        result.append((ids[kept], impacts[kept]))
    return result
