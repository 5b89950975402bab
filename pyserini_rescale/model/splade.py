"""The SPLADE vector of a text: log1p(ReLU(logits)), maximum over positions (arXiv 2606.18811, Eq. 1 and 2).

Two forms of the same thing: ``plain_pool`` takes the logits (B, L, V) and is the reference; ``splade_vectors`` never
makes them. It takes the projection's input (B, L, d), drops the padding, multiplies a block of the vocabulary with a
few texts' tokens at a time and keeps the maximum per text. Bias, ReLU and log1p follow the maximum: all three are
monotone, also when rounded, so that changes nothing.

Inference only. What is not here: tokens (encode/encoder.py), impacts (encode/quantize.py), training.

Letters: B texts, L positions, T tokens without padding (the sum of the texts' lengths), V vocabulary, d width of the
projection's input.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import nn
from transformers import PreTrainedModel

from pyserini_rescale.model.head import Head, bypassed

# Logits held at a time. On a CPU 2^18 float32 are 1 MiB, about the L2 caches of two cores: measured on an AMD EPYC with
# d = 128, 2^17 and 2^18 run within a few per cent of each other and 2^20 is a third slower; with d = 768 all are equal.
# An accelerator wants large blocks instead.
_CELLS_CPU = 2**18
_CELLS_DEVICE = 2**26

# Tokens multiplied at once on a CPU: short texts share one pass over the weights, long ones go alone.
_TOKENS_AT_ONCE = 512


def plain_pool(logits: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return vectors (B, V), float32, from logits (B, L, V) and a mask (B, L) that is 0 on padding.

    The reference that the fused form is tested against. Padding is left out, not multiplied away: inf * 0 is NaN.
    """
    padding = ~mask.bool().unsqueeze(-1)
    weights = torch.log1p(torch.relu(logits.float())).masked_fill(padding, 0.0)  # weights are never below 0
    return weights.amax(dim=1)


def projection_input(
    model: PreTrainedModel, head: Head, input_ids: torch.Tensor, attention_mask: torch.Tensor
) -> torch.Tensor:
    """Return what the model feeds to its projection, (B, L, d), for ids (B, L) and a mask (B, L)."""
    with bypassed(head.projection):
        return model(input_ids=input_ids, attention_mask=attention_mask).logits


def max_logits(
    hidden: torch.Tensor, mask: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """Return the largest logit of each term over each text's positions, (B, V), float32.

    hidden (B, L, d), mask (B, L), weight (V, d), bias (V) or None. A text without tokens gets -inf. NaN and inf
    in padding are not seen; in a token they come through.
    """
    blocks = _max_packed if hidden.device.type == "cpu" else _max_padded
    largest = blocks(hidden, mask.bool(), weight)
    return largest if bias is None else largest.add_(bias.float())


def _max_packed(hidden: torch.Tensor, mask: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """``max_logits`` without bias for a CPU: padding is dropped, texts are taken a few at a time."""
    hidden = hidden.to(weight.dtype)
    largest = torch.full((len(hidden), len(weight)), -torch.inf)
    lengths = mask.sum(dim=1).tolist()
    for rows in _groups(lengths, _TOKENS_AT_ONCE):
        tokens = hidden[rows][mask[rows]]  # (T, d)
        step = max(256, _CELLS_CPU // len(tokens))
        for start in range(0, len(weight), step):
            logits = torch.mm(weight[start : start + step], tokens.T)  # (v, T): a term's positions are neighbours
            at = 0
            for row in rows:
                largest[row, start : start + step] = logits[:, at : at + lengths[row]].amax(dim=1)
                at += lengths[row]
    return largest


def _groups(lengths: list[int], most: int) -> Iterator[list[int]]:
    """Yield runs of rows with at most ``most`` tokens together (or of one row), without the rows that have none."""
    rows: list[int] = []
    tokens = 0
    for row, length in enumerate(lengths):
        if length == 0:
            continue
        if rows and tokens + length > most:
            yield rows
            rows, tokens = [], 0
        rows.append(row)
        tokens += length
    if rows:
        yield rows


def _max_padded(hidden: torch.Tensor, mask: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """``max_logits`` without bias for an accelerator: few large operations; the padding is masked out of each block."""
    hidden = hidden.to(weight.dtype)
    padding = ~mask.unsqueeze(-1)
    step = max(256, _CELLS_DEVICE // mask.numel())
    parts = []
    for start in range(0, len(weight), step):
        logits = nn.functional.linear(hidden, weight[start : start + step])  # (B, L, v)
        parts.append(logits.masked_fill(padding, -torch.inf).amax(dim=1).float())
    return torch.cat(parts, dim=1)


@torch.inference_mode()
def splade_vectors(
    model: PreTrainedModel, head: Head, input_ids: torch.Tensor, attention_mask: torch.Tensor
) -> torch.Tensor:
    """Return the vectors (B, V), float32, of ids (B, L) with a mask (B, L); equal to ``plain_pool`` of the logits."""
    hidden = projection_input(model, head, input_ids, attention_mask)
    return max_logits(hidden, attention_mask, head.weight, head.bias).relu_().log1p_()


def micro_batches(lengths: Sequence[int], most_texts: int, most_tokens: int) -> Iterator[list[int]]:
    """Yield the numbers of the texts in batches of similar length, longest first.

    A batch holds at most ``most_texts`` texts and, padded to its longest, ``most_tokens`` tokens (one text at least).
    Longest first, so that a lack of memory shows at once.
    """
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    start = 0
    while start < len(order):
        size = max(1, min(most_texts, most_tokens // max(1, lengths[order[start]])))
        yield order[start : start + size]
        start += size


def pad(sequences: Sequence[Sequence[int]], filler: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and mask, both (B, L) of int64, from token ids of any lengths; filled on the right with ``filler``.

    On the right whatever the tokenizer prefers: absolute positions then are those of the text on its own.
    """
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    mask = torch.arange(int(lengths.max())).unsqueeze(0) < lengths.unsqueeze(1)  # (B, L)
    ids = torch.full(mask.shape, filler)
    ids[mask] = torch.tensor([token for sequence in sequences for token in sequence])
    return ids, mask.long()
