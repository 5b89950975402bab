"""What a head does downstream: how many terms, how large, whether scores tell texts apart. And a verdict on it.

The figures are those of SPLADE vectors (arXiv 2606.18811, Eq. 1 to 4) of a few texts, at initialisation or at any time.
The verdict has two limits on each side. They are conventions, chosen to be far from what trains well and near to what
does not, not results: no experiment of ours or the paper's fixes them more closely than a factor of two or so.

too large
    The in-batch loss is above ``LOSS_LIMIT`` times ln(candidates). ln(candidates) is the loss of scores that tell
    nothing apart; twice that means that the matching passage gets, in the geometric mean, at most the square of its
    chance: the softmax is saturated on wrong answers, and each query learns from one candidate only. Or queries or
    documents have more than ``DENSE`` of the vocabulary in their vectors: trained models have a hundredth, and Lucene
    takes 1,024 query terms.
too small
    Queries or documents have fewer than ``FEW`` terms on average once weights are impacts, or more than ``EMPTY`` of
    them none: what the quantiser rounds to zero is not in the index, whatever the float scores say. Or, with vectors
    that are not dense, the mean cosine of unrelated passages is above ``ALIKE``: the bias decides what is active, not
    the text.

Where it fails: a few texts of another kind than the collection's say little; a loss that is low because query and
passage share words says nothing about learning; a dense start can be regularised away (the paper's BERT may well start
dense), and a sparse one can still be useless.

Letters: Q queries, C candidates, N texts, V vocabulary.
"""

import dataclasses
import math
from typing import Any

import torch

from pyserini_rescale.errors import ModelError
from pyserini_rescale.model.pooled import Pooled

LOSS_LIMIT = 2.0
DENSE = 0.10
FEW = 8.0
EMPTY = 0.10
ALIKE = 0.95


@dataclasses.dataclass(frozen=True)
class Side:
    """Vectors of queries or of documents; means over the texts.

    active: terms with a weight above zero. indexed: terms with an impact of 1 or more. empty: share of texts without an
    indexed term. weight_mean, weight_max: of the weights above zero; None where there are none.
    """

    texts: int
    active: float
    indexed: float
    empty: float
    weight_mean: float | None
    weight_max: float | None


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """The figures of one head on one set of texts, and the verdict.

    match_score, other_score: mean dot product of a query with its passage, and with the other candidates. loss: mean
    cross-entropy of picking the passage among all candidates (Eq. 4, temperature 1); chance: ln(candidates). first:
    share of queries whose passage scores highest (ties count against it). cosine: mean over pairs of unrelated
    passages. special_share: share of the documents' weight that lies on special tokens. None where there are too few
    texts to tell. verdict: healthy, too large, or too small. reasons: the figures behind it.
    """

    vocabulary: int
    queries: Side | None
    documents: Side
    match_score: float | None
    other_score: float | None
    candidates: int
    loss: float | None
    chance: float | None
    first: float | None
    cosine: float | None
    special_share: float | None
    verdict: str
    reasons: tuple[str, ...]

    def line(self) -> str:
        """Return the verdict and its figures in one line."""
        return f"{self.verdict}: {'; '.join(self.reasons)}"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as values for JSON."""
        return dataclasses.asdict(self)


def diagnose(
    pooled: Pooled, k: float = 1.0, *, rescale_bias: bool = False, offset: torch.Tensor | float = 0.0
) -> Diagnosis:
    """Return the figures of ``pooled`` texts for a k and an offset (number or (V)); by default of the head as it is."""

    def weights(products: torch.Tensor) -> torch.Tensor:
        return pooled.logits(products, k, rescale_bias, offset).relu_().log1p_()

    candidates = weights(pooled.candidates)
    documents = candidates if pooled.documents is pooled.candidates else weights(pooled.documents)
    queries = weights(pooled.queries) if len(pooled.queries) else None
    vocabulary = documents.shape[1]
    scores = None if queries is None or len(candidates) < 2 else (queries @ candidates.T).double()
    figures: dict[str, Any] = {
        "vocabulary": vocabulary,
        "queries": None if queries is None else _side(queries, pooled),
        "documents": _side(documents, pooled),
        **_score_figures(scores),
        "candidates": len(candidates),
        "cosine": _mean_cosine(candidates[: len(pooled.queries)]),
        "special_share": _share(documents, pooled.special),
    }
    judged = ("vocabulary", "queries", "documents", "loss", "chance", "cosine")
    verdict, reasons = _judge(**{name: figures[name] for name in judged})
    return Diagnosis(**figures, verdict=verdict, reasons=reasons)


def in_batch_loss(scores: torch.Tensor) -> float:
    """Return the mean over queries of -log softmax of the own passage's score; scores (Q, C), passage i of query i."""
    if not torch.isfinite(scores).all():
        raise ModelError("scores are not finite: the head is far too large")
    return float(-torch.log_softmax(scores.double(), dim=1).diagonal().mean())


def least_impact_weight(pooled: Pooled) -> float:
    """Return the weight above which the impact is 1 or more: half a step of the quantiser (a half goes to zero)."""
    return 0.5 * pooled.policy.weight_range / pooled.policy.quant_range


def _side(weights: torch.Tensor, pooled: Pooled) -> Side:
    active = weights > 0
    indexed = (weights > least_impact_weight(pooled)).sum(dim=1)
    count = int(active.sum())
    return Side(
        texts=len(weights),
        active=count / len(weights),
        indexed=float(indexed.double().mean()),
        empty=float((indexed == 0).double().mean()),
        weight_mean=float(weights.sum(dtype=torch.float64)) / count if count else None,
        weight_max=float(weights.max()) if count else None,
    )


def _score_figures(scores: torch.Tensor | None) -> dict[str, float | None]:
    if scores is None:
        return dict.fromkeys(("match_score", "other_score", "loss", "chance", "first"))
    queries, candidates = scores.shape
    match = scores.diagonal()
    others = scores.clone()
    others.fill_diagonal_(-math.inf)
    return {
        "match_score": float(match.mean()),
        "other_score": float((scores.sum() - match.sum()) / (queries * (candidates - 1))),
        "loss": in_batch_loss(scores),
        "chance": math.log(candidates),
        "first": float((match > others.amax(dim=1)).double().mean()),
    }


def _mean_cosine(vectors: torch.Tensor) -> float | None:
    """Return the mean cosine of two different rows (N, V), by the closed form of head_stats; rows of zeros aside."""
    lengths = vectors.double().norm(dim=1)
    kept = lengths > 0
    count = int(kept.sum())
    if count < 2:
        return None
    total = (vectors[kept].double() / lengths[kept].unsqueeze(1)).sum(dim=0)
    return (float(total @ total) - count) / (count * (count - 1))


def _share(weights: torch.Tensor, ids: tuple[int, ...]) -> float | None:
    total = float(weights.sum(dtype=torch.float64))
    return float(weights[:, list(ids)].sum(dtype=torch.float64)) / total if total > 0 else None


def _judge(
    vocabulary: int,
    queries: Side | None,
    documents: Side,
    loss: float | None,
    chance: float | None,
    cosine: float | None,
) -> tuple[str, tuple[str, ...]]:
    sides = [("queries", queries), ("documents", documents)]
    sizes = {name: f"{name} have {side.indexed:,.0f} of {vocabulary:,} terms" for name, side in sides if side}
    small = [
        f"{sizes[name]} after quantisation (fewer than {FEW:g})" for name, side in sides if side and side.indexed < FEW
    ] + [
        f"{side.empty:.0%} of the {name} have no term after quantisation (more than {EMPTY:.0%})"
        for name, side in sides if side and side.empty > EMPTY
    ]  # fmt: skip
    large = [
        f"{sizes[name]}, {side.indexed / vocabulary:.1%} (more than {DENSE:.0%})"
        for name, side in sides if side and side.indexed > DENSE * vocabulary
    ]  # fmt: skip
    told = "no pairs, hence no loss"
    if loss is not None and chance is not None:
        told = f"in-batch loss {loss:,.2f} against ln(candidates) = {chance:.2f}"
        if loss > LOSS_LIMIT * chance:
            large.append(f"{told} (more than {LOSS_LIMIT:g} times)")
    alike = cosine is not None and cosine > ALIKE
    if alike and not any(side and side.indexed > DENSE * vocabulary for _, side in sides):
        small.append(f"cosine of unrelated passages {cosine:.3f} (more than {ALIKE:g}): the bias decides, not the text")
    if small:
        return "too small", tuple(small + large)
    if large:
        return "too large", tuple(large)
    more = [] if cosine is None else [f"cosine of unrelated passages {cosine:.2f}"]
    return "healthy", (*sizes.values(), told, *more)
