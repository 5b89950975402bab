"""Two runs compared query by query: differences, and whether they could be chance.

Paired tests on the values of all judged queries: Student's t-test, or Fisher's randomisation test, which assumes nothing
of the values and flips the sign of each query's difference at random (Smucker, Allan, Carterette, CIKM 2007). Both are
two-sided. No correction for many comparisons is made.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Literal

Test = Literal["t-test", "randomisation"]

PERMUTATIONS = 100_000
_BLOCK = 1_000  # permutations at once


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One measure of runs A and B. difference: mean of B minus A. wins, ties, losses: queries where B is above, equal to or
    below A. p: of the test; 1 where no query differs, None for a single query that does. queries: query -> (A, B)."""

    measure: str
    a: float
    b: float
    wins: int
    ties: int
    losses: int
    test: Test
    p: float | None
    queries: dict[str, tuple[float, float]]

    @property
    def difference(self) -> float:
        return self.b - self.a

    def largest(self, number: int) -> list[tuple[str, float, float]]:
        """Return (query, A, B) of the largest differences."""
        differing = [(query, *pair) for query, pair in self.queries.items() if pair[0] != pair[1]]
        return sorted(differing, key=lambda row: (-abs(row[2] - row[1]), row[0]))[:number]


def compare_values(
    measure: str, a: Mapping[str, float], b: Mapping[str, float], test: Test = "t-test", seed: int = 0
) -> Comparison:
    """Compare query -> value of two runs, which hold the same queries."""
    pairs = {query: (a[query], b[query]) for query in a}
    differences = [second - first for first, second in pairs.values()]
    return Comparison(
        measure=measure,
        a=math.fsum(a.values()) / len(pairs),
        b=math.fsum(b[query] for query in pairs) / len(pairs),
        wins=sum(one > 0 for one in differences),
        ties=sum(one == 0 for one in differences),
        losses=sum(one < 0 for one in differences),
        test=test,
        p=_p_value(differences, test, seed),
        queries=pairs,
    )


def _p_value(differences: list[float], test: Test, seed: int) -> float | None:
    if not any(differences):
        return 1.0
    if test == "randomisation":
        return _randomisation(differences, seed)
    if len(differences) < 2:
        return None
    if len(set(differences)) == 1:  # no spread: scipy would divide by zero
        return 0.0
    from scipy import stats

    return float(stats.ttest_1samp(differences, 0.0).pvalue)


def _randomisation(differences: list[float], seed: int) -> float:
    """Return the share of sign flips, the given signs among them, whose mean is at least as far from 0."""
    import numpy as np

    generator = np.random.default_rng(seed)
    values = np.array([one for one in differences if one])
    given = abs(values.sum()) * (1 - 1e-12)  # sums in another order are rounded otherwise
    as_far = 0
    for _ in range(PERMUTATIONS // _BLOCK):
        signs = generator.integers(0, 2, (_BLOCK, len(values))) * 2 - 1
        as_far += int((abs(signs @ values) >= given).sum())
    return (as_far + 1) / (PERMUTATIONS + 1)
