"""Pruning: leaving out a vector's small weights before they are quantised, documents and queries each by their own rule."""

import dataclasses

import numpy as np

from pyserini_rescale.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Pruning:
    """What a vector keeps: its ``top_terms`` largest weights, and of those what is at least ``share`` of the largest."""

    top_terms: int | None = None
    share: float | None = None

    def __post_init__(self) -> None:
        if self.top_terms is not None and self.top_terms < 1:
            raise ConfigError(f"--top-terms {self.top_terms}: 1 or more is needed")
        if self.share is not None and not 0 <= self.share <= 1:
            raise ConfigError(f"--share {self.share}: it is a share of the largest weight, from 0 to 1")

    def apply(self, ids: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids (ascending, as before) and weights that are kept. Of equal weights the lower id goes first."""
        if self.share is not None and len(weights):
            kept = weights >= self.share * weights.max()
            ids, weights = ids[kept], weights[kept]
        if self.top_terms is not None and len(weights) > self.top_terms:
            first = np.sort(np.argsort(-weights, kind="stable")[: self.top_terms])
            ids, weights = ids[first], weights[first]
        return ids, weights
