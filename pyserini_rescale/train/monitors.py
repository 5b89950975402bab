"""What a training run says about itself: figures per logging step, and a watch for collapse.

``Totals`` sums over micro-batches and ranks and gives the figures, ``JsonlLog`` (log.py) keeps them one line a step, and
``Watch`` turns them into a reason to stop. TensorBoard and the progress bar are transformers' own; what is drawn from a
log is in plot.py. The loss, FLOPS and lambdas are those of arXiv 2606.18811, Eq. 4 and 5; they are handed in, not
computed here.

Letters: B queries of a micro-batch on one rank, C candidates, V vocabulary.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
import torch.distributed

from pyserini_rescale.train.log import JsonlLog, read_log

__all__ = ["FIGURES", "JsonlLog", "Totals", "Watch", "WatchSettings", "read_log"]

# What Totals.figures returns, in this order.
FIGURES = (
    "step",
    "epoch",
    "loss",
    "contrastive",
    "regularizer",
    "flops_query",
    "flops_document",
    "lambda_query",
    "lambda_document",
    "learning_rate",
    "query_active",
    "document_active",
    "query_empty",
    "document_empty",
    "largest_weight",
    "positive_score",
    "hardest_negative_score",
    "gradient_norm",
    "steps_per_second",
)

# What is summed on the device, in this order: first the figures that stand for a query, then those for a document.
_PER_QUERY = (
    "contrastive",
    "regularizer",
    "flops_query",
    "flops_document",
    "query_active",
    "query_empty",
    "positive_score",
    "hardest_negative_score",
)
_PER_DOCUMENT = ("document_active", "document_empty")
_SUMMED = _PER_QUERY + _PER_DOCUMENT


@dataclasses.dataclass
class Totals:
    """Sums over the micro-batches since the last logging step, on this rank.

    Nothing is read back from the device before ``figures``, so that a step does not wait for it.

    step: the optimiser step that the run starts after (0, or the one resumed from). device: where the sums lie; None
    takes that of the first vectors. clock: seconds, for steps_per_second; it starts here, so make this just before
    training, or call ``start``.
    """

    step: int = 0
    device: torch.device | str | None = None
    clock: Callable[[], float] = time.perf_counter

    def __post_init__(self) -> None:
        self.start(self.step)

    def start(self, step: int) -> None:
        """Forget what was added, and start the clock at an optimiser step."""
        self.step = step
        self.since = self.clock()
        self.micro_batches = 0
        self.queries = 0  # counts are known on the host: no need for them on the device
        self.documents = 0
        self.lambdas = (0.0, 0.0)
        self.sums: torch.Tensor | None = None  # one number per name in _SUMMED
        self.largest: torch.Tensor | None = None  # ()

    def restart_clock(self) -> None:
        """Count the seconds of steps_per_second from now; what was added stays."""
        self.since = self.clock()

    @torch.no_grad()
    def add(
        self,
        query_vectors: torch.Tensor,
        document_vectors: torch.Tensor,
        scores: torch.Tensor,
        positive: torch.Tensor,
        contrastive: torch.Tensor,
        flops_query: torch.Tensor,
        flops_document: torch.Tensor,
        *,
        lambda_query: float,
        lambda_document: float,
    ) -> None:
        """Add a micro-batch of this rank.

        query_vectors: (B, V). document_vectors: (2B, V), this rank's own, gathered or not. scores: (B, C) float32, raw
        dot products, before the temperature. positive: (B) int64, the column of each query's positive. contrastive: the
        mean loss of these B queries. flops_query, flops_document: the raw sums of Eq. 5, as they are optimised (per rank
        or global). The three are scalars. lambda_query, lambda_document: the weights of this step.

        Raises ValueError for scores of another shape, or with a single candidate, which has no negative.
        """
        if scores.shape[:1] != query_vectors.shape[:1] or scores.dim() != 2 or scores.shape[1] < 2:
            raise ValueError(f"scores {tuple(scores.shape)} are not (B, C) with B = {len(query_vectors)} and C > 1")
        if positive.shape != scores.shape[:1]:
            raise ValueError(f"positive {tuple(positive.shape)} is not (B) with B = {len(query_vectors)}")
        sums, largest = self._place(query_vectors.device)

        def scalar(value: torch.Tensor) -> torch.Tensor:
            return torch.as_tensor(value, device=sums.device).detach().to(sums.dtype)

        columns = positive.unsqueeze(1)  # (B, 1)
        others = scores.scatter(1, columns, -math.inf)  # (B, C)
        count = len(query_vectors)
        values = {
            "contrastive": scalar(contrastive) * count,
            "flops_query": scalar(flops_query) * count,
            "flops_document": scalar(flops_document) * count,
            "positive_score": scores.gather(1, columns).sum(dtype=sums.dtype),
            "hardest_negative_score": others.amax(dim=1).sum(dtype=sums.dtype),
        }
        # Weighted here and not at the logging step, as the lambdas move from step to step.
        values["regularizer"] = lambda_query * values["flops_query"] + lambda_document * values["flops_document"]
        for name, vectors in (("query", query_vectors), ("document", document_vectors)):
            active = (vectors > 0).sum(dim=1)  # (B) or (2B)
            values[f"{name}_active"] = active.sum()
            values[f"{name}_empty"] = (active == 0).sum()
            # NaN has no order, and the maximum over ranks would lose it: it counts as infinite.
            top = torch.nan_to_num(vectors.amax().to(largest.dtype), nan=math.inf, posinf=math.inf)
            largest = torch.maximum(largest, top)
        self.largest = largest
        self.sums = sums + torch.stack([values[name].to(sums.dtype) for name in _SUMMED])
        self.micro_batches += 1
        self.queries += count
        self.documents += len(document_vectors)
        self.lambdas = (lambda_query, lambda_document)

    def figures(
        self, *, step: int, epoch: float, learning_rate: float, gradient_norm: torch.Tensor | float | None
    ) -> dict[str, Any]:
        """Return the figures since the last logging step, over all ranks, under the names in FIGURES; then start again.

        Every rank has to call this at the same step, where torch.distributed is initialised: it reduces twice (sums,
        maxima). Means are over all queries or all documents; contrastive, FLOPS and regularizer are means over
        micro-batches weighted by their queries, and loss = contrastive + regularizer is what was optimised. Lambdas are
        the last step's. gradient_norm: the global one, None where it is not known. Values may be NaN or infinite.

        Raises ValueError if no rank has added anything.
        """
        here = torch.device("cpu") if self.sums is None else self.sums.device
        sums, largest = self._place(here)
        counts = torch.tensor([self.queries, self.documents], dtype=sums.dtype).to(sums.device)
        sums = torch.cat([counts, sums])
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(sums, op=torch.distributed.ReduceOp.SUM)
            largest = largest.clone()
            torch.distributed.all_reduce(largest, op=torch.distributed.ReduceOp.MAX)
        queries, documents, *totals = sums.tolist()
        if not queries or not documents:
            raise ValueError("no micro-batch was added since the last logging step")
        values = dict(zip(_SUMMED, totals, strict=True))
        figures: dict[str, Any] = {name: values[name] / queries for name in _PER_QUERY}
        figures |= {name: values[name] / documents for name in _PER_DOCUMENT}
        seconds = self.clock() - self.since
        figures |= {
            "step": int(step),
            "epoch": float(epoch),
            "loss": figures["contrastive"] + figures["regularizer"],
            "lambda_query": self.lambdas[0],
            "lambda_document": self.lambdas[1],
            "learning_rate": float(learning_rate),
            "largest_weight": float(largest),
            "gradient_norm": None if gradient_norm is None else float(gradient_norm),
            "steps_per_second": (step - self.step) / seconds if seconds > 0 else None,
        }
        self.start(step)
        return {name: figures[name] for name in FIGURES}

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's sums as plain values, for a checkpoint between two logging steps."""
        return {
            "micro_batches": self.micro_batches,
            "queries": self.queries,
            "documents": self.documents,
            "lambdas": list(self.lambdas),
            "sums": None if self.sums is None else self.sums.tolist(),
            "largest": None if self.largest is None else float(self.largest),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state of ``state_dict``; the clock and the step it counts from stay as they are."""
        self.micro_batches, self.queries, self.documents = (
            int(state[name]) for name in ("micro_batches", "queries", "documents")
        )
        self.lambdas = tuple(state["lambdas"])
        self.sums = self.largest = None
        if state["sums"] is not None:
            sums, _ = self._place(torch.device("cpu"))
            self.sums = torch.tensor(state["sums"], dtype=sums.dtype).to(sums.device)
            self.largest = torch.tensor(state["largest"], dtype=sums.dtype).to(sums.device)

    def _place(self, found: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Return sums and maximum; made where they are not there yet, on ``device`` or else the one ``found``."""
        device = torch.device(found if self.device is None else self.device)
        if self.sums is None or self.largest is None:
            dtype = torch.float32 if device.type == "mps" else torch.float64  # Apple's GPUs have no float64
            self.sums = torch.zeros(len(_SUMMED), dtype=dtype, device=device)
            self.largest = torch.zeros((), dtype=dtype, device=device)
        elif self.device is None and self.sums.device != found:  # a state that was loaded before the device was known
            self.sums, self.largest = self.sums.to(found), self.largest.to(found)
        return self.sums, self.largest


class WatchSettings(Protocol):
    """When a run counts as collapsed; defaults and their limits are the configuration's (config.py).

    action: "stop" or "warn"; what is done is the trainer's matter, here it only decides whether a reason is given each
    time or once. dense: share of the vocabulary that queries or documents may have in their vectors on average. empty:
    share of queries or documents that may have no term. patience: consecutive logging steps beyond a limit before it
    counts. after: share of all steps before which dense does not count: large heads start dense (ModernBERT at k = 1 with
    86 to 95 % of the vocabulary), and it takes the regulariser a while to change that.
    """

    @property
    def action(self) -> str: ...
    @property
    def dense(self) -> float: ...
    @property
    def empty(self) -> float: ...
    @property
    def patience(self) -> int: ...
    @property
    def after(self) -> float: ...


class Watch:
    """Sees a run collapse: vectors that stay dense, vectors that are empty, a loss that is not a number.

    The figures are the same on every rank, and so is what ``observe`` returns.
    """

    KINDS = ("not_finite", "empty", "dense")

    def __init__(self, settings: WatchSettings, vocabulary_size: int, total_steps: int) -> None:
        """``vocabulary_size``: V, of the vectors. ``total_steps``: optimiser steps of the whole run."""
        if vocabulary_size < 1 or total_steps < 1:
            raise ValueError(f"vocabulary of {vocabulary_size} or {total_steps} steps: 1 or more is needed")
        self.settings = settings
        self.vocabulary_size = vocabulary_size
        self.total_steps = total_steps
        self.streaks = dict.fromkeys(self.KINDS, 0)
        self.given: list[str] = []

    def observe(self, figures: Mapping[str, Any]) -> str | None:
        """Take in the figures of a logging step (those of Totals); return why the run has collapsed, or None.

        The reason is one line with the numbers and what to do. Where the action is "warn", each kind is returned once in
        a run. NaN or infinity in the loss, its parts or the gradient counts at once, the others after the patience.
        """
        settings, step = self.settings, figures["step"]
        limit = settings.dense * self.vocabulary_size
        beyond = {
            "not_finite": bool(_not_finite(figures)),
            "empty": max(figures["query_empty"], figures["document_empty"]) > settings.empty,
            "dense": step >= settings.after * self.total_steps
            and max(figures["query_active"], figures["document_active"]) > limit,
        }
        for kind in self.KINDS:
            self.streaks[kind] = self.streaks[kind] + 1 if beyond[kind] else 0
        for kind in self.KINDS:
            enough = 1 if kind == "not_finite" else settings.patience
            if self.streaks[kind] >= enough and not (settings.action == "warn" and kind in self.given):
                if kind not in self.given:
                    self.given.append(kind)
                return self._reason(kind, figures)
        return None

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain values, for an exact resume."""
        return {"streaks": dict(self.streaks), "given": list(self.given)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state of ``state_dict``; raises ValueError for one with other kinds."""
        if set(state["streaks"]) != set(self.KINDS) or not set(state["given"]) <= set(self.KINDS):
            raise ValueError(f"not a state of this watch: {dict(state)}")
        self.streaks = {kind: int(state["streaks"][kind]) for kind in self.KINDS}
        self.given = list(state["given"])

    def _reason(self, kind: str, figures: Mapping[str, Any]) -> str:
        at = f"step {figures['step']:,} of {self.total_steps:,}"
        if kind == "not_finite":
            return (
                f"not finite: {', '.join(_not_finite(figures))} at {at}, largest weight "
                f"{figures['largest_weight']:,.4g}: take a larger k, an offset or a lower learning rate"
            )
        held = f"for {self.streaks[kind]} logging steps in a row, up to {at}"
        if kind == "empty":
            return (
                f"empty vectors: {figures['query_empty']:.0%} of queries and {figures['document_empty']:.0%} of "
                f"documents have no term (more than {self.settings.empty:.0%} {held}): take a smaller k or smaller lambdas"
            )
        sizes = " and ".join(
            f"{name} have {figures[key]:,.0f} terms ({figures[key] / self.vocabulary_size:.0%})"
            for name, key in (("queries", "query_active"), ("documents", "document_active"))
        )
        return (
            f"dense vectors: {sizes} of {self.vocabulary_size:,} on average (more than {self.settings.dense:.0%} {held}): "
            f"take a larger k or an offset, see `python -m pyserini_rescale head suggest`"
        )


def _not_finite(figures: Mapping[str, Any]) -> list[str]:
    """Return "name = value" of what is NaN or infinite among the loss, its parts and the gradient norm."""
    names = ("loss", "contrastive", "regularizer", "gradient_norm")
    values = ((name, figures[name]) for name in names)
    return [f"{name} = {value}" for name, value in values if value is not None and not math.isfinite(value)]
