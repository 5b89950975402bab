"""In-batch contrastive loss and FLOPS regularisation, on one process or over all of them.

Sources: arXiv 2606.18811, Eq. 4 and 5; FLOPS: Paria et al., arXiv 2004.05665. Everything is computed in float32, also
under autocast (bf16 scores keep 8 bits).

What is gathered, and what is differentiated. Data-parallel training averages the gradients of W processes. A part that
is taken per process ("rank") is averaged with them: it stands for the mean of W small-batch values. A part that is taken
over the global batch ("global") is computed whole by every process, from the vectors of all, of which only its own carry
gradients; multiplied by W before that averaging, its gradient is that of one process with the whole batch.

Gradient accumulation: each micro-batch has its own candidates and its own mean activations; losses and gradients of
the micro-batches are averaged. So accumulation does not widen the candidates, and FLOPS of small batches is larger.

Letters: B queries of a process, W processes, V vocabulary, C candidates.
"""

import dataclasses

import torch
import torch.distributed as dist
from torch.nn import functional

from pyserini_rescale.train.config import Over


@dataclasses.dataclass(frozen=True)
class Parts:
    """The loss of one micro-batch.

    backward: the scalar whose gradient is wanted, scaled as the module's docstring says; the other scalars are the
    values to report. scores (B, C): raw dot products of this process's queries; positive (B): the column of each one's
    positive.
    """

    backward: torch.Tensor
    contrastive: torch.Tensor
    flops_query: torch.Tensor
    flops_document: torch.Tensor
    scores: torch.Tensor
    positive: torch.Tensor


def flops(vectors: torch.Tensor) -> torch.Tensor:
    """Return sum_j (mean over texts of v_j)^2 of vectors (N, V): the expected products of a dot product (Eq. 5)."""
    return vectors.mean(dim=0).square().sum()


def contrastive(scores: torch.Tensor, positive: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return the mean over queries of -log softmax(scores / temperature)[positive] (Eq. 4); scores (N, C)."""
    return functional.cross_entropy(scores / temperature, positive)


def splade_loss(
    queries: torch.Tensor,
    documents: torch.Tensor,
    *,
    temperature: float,
    candidates: Over,
    batch: Over,
    lambda_query: float,
    lambda_document: float,
) -> Parts:
    """Return the loss of this process's queries (B, V) and documents (2B, V): B positives, then B hard negatives.

    candidates, batch: "rank" or "global", for the contrastive loss and for FLOPS.
    """
    with torch.autocast(queries.device.type, enabled=False):
        own = queries.float(), documents.float()
        world = dist.get_world_size() if dist.is_initialized() else 1
        everyone = own
        if world > 1 and "global" in (candidates, batch):
            everyone = gathered(own[0]), gathered(own[1])

        scored = everyone if candidates == "global" else own
        scores = scored[0] @ scored[1].T  # (N, C)
        positive = positives(len(queries), len(scores) // len(queries), scores.device)
        loss = contrastive(scores, positive, temperature)

        meaned = everyone if batch == "global" else own
        flops_query, flops_document = flops(meaned[0]), flops(meaned[1])
        regularizer = lambda_query * flops_query + lambda_document * flops_document

        backward = (world if candidates == "global" else 1) * loss + (world if batch == "global" else 1) * regularizer
    first = len(queries) * dist.get_rank() if len(scores) > len(queries) else 0
    mine = slice(first, first + len(queries))
    return Parts(
        backward, loss.detach(), flops_query.detach(), flops_document.detach(), scores.detach()[mine], positive[mine]
    )


def positives(size: int, world: int, device: torch.device) -> torch.Tensor:
    """Return the columns (world * size) of the positives where each process has put ``size`` of them before as many
    negatives."""
    own = torch.arange(size, device=device)
    return torch.cat([2 * size * rank + own for rank in range(world)])


def gathered(vectors: torch.Tensor) -> torch.Tensor:
    """Return the vectors (W B, V) of all processes, in the order of their ranks; gradients reach only our own."""
    parts = [torch.empty_like(vectors) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, vectors.detach().contiguous())
    parts[dist.get_rank()] = vectors
    return torch.cat(parts)
