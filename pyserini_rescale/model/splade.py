"""The SPLADE vector of a text: log1p(ReLU(logits)), maximum over positions (arXiv 2606.18811, Eq. 1 and 2).

Two forms of the same thing: ``plain_pool`` takes the logits (B, L, V) and is the reference; ``splade_vectors`` never
makes them. It takes the projection's input (B, L, d), drops the padding, multiplies a block of the vocabulary with a
few texts' tokens at a time and keeps the maximum per text. Bias, ReLU and log1p follow the maximum: all three are
monotone, also when rounded, so that changes nothing.

The blocks are shared with training: ``max_positions`` says where each maximum is, which is all that the gradients in
fused.py need. What is not here: gradients, tokens (encode/encoder.py), impacts (encode/quantize.py).

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
    in padding are not seen; in a token they come through. float64 weights give float64.
    """
    return max_positions(hidden, mask, weight, bias, positions=False)[0]


@torch.no_grad()
def max_positions(
    hidden: torch.Tensor,
    mask: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    *,
    positions: bool = True,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return ``max_logits`` and, if ``positions``, where each is: (B, V), int32, from 0 to L - 1; else None.

    Without gradients (fused.py has them). Of several positions with the largest logit, the first, on every device. NaN
    counts as the largest. In a text without tokens the position is 0 and means nothing.

    The product runs in ``product_type``. In half precision the bias is part of it, as in the plain form: a logit is
    then rounded once, at its own size and not at the product's, which a large bias (an offset, say) makes far larger.
    """
    product = product_type(weight)
    blocks = _max_packed if hidden.device.type == "cpu" else _max_padded
    largest = torch.full(
        (len(hidden), len(weight)),
        -torch.inf,
        dtype=torch.float64 if product == torch.float64 else torch.float32,
        device=hidden.device,
    )
    where = torch.zeros(largest.shape, dtype=torch.int32, device=hidden.device) if positions else None
    inner = bias.to(product) if bias is not None and product in (torch.bfloat16, torch.float16) else None
    with torch.autocast(hidden.device.type, enabled=False):
        blocks(hidden.to(product), mask.bool(), weight.to(product), inner, largest, where)
    if bias is not None and inner is None:
        largest.add_(bias.to(largest.dtype))
    return largest, where


def product_type(weight: torch.Tensor) -> torch.dtype:
    """Return the type that hidden states are multiplied with ``weight`` in: its own, or autocast's where that is on."""
    kind = weight.device.type
    if torch.is_autocast_enabled(kind) and weight.dtype != torch.float64:  # autocast leaves float64 alone
        return torch.get_autocast_dtype(kind)
    return weight.dtype


def _max_packed(
    hidden: torch.Tensor,
    mask: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    largest: torch.Tensor,
    where: torch.Tensor | None,
) -> None:
    """Fill ``largest`` and ``where`` on a CPU: padding is dropped, texts are taken a few at a time.

    hidden, weight and bias have one type. Rows of texts without tokens are left as they are.
    """
    lengths = mask.sum(dim=1).tolist()
    for rows in _groups(lengths, _TOKENS_AT_ONCE):
        tokens = hidden[rows][mask[rows]]  # (T, d)
        step = max(256, _CELLS_CPU // len(tokens))
        for start in range(0, len(weight), step):
            part = slice(start, start + step)
            if bias is None:
                logits = torch.mm(weight[part], tokens.T)  # (v, T): a term's positions are neighbours
            else:
                logits = torch.addmm(bias[part].unsqueeze(1), weight[part], tokens.T)
            at = 0
            for row in rows:
                block = logits[:, at : at + lengths[row]]
                at += lengths[row]
                if where is None:
                    largest[row, part] = block.amax(dim=1)
                else:
                    index = _argmax(block)  # (v, 1)
                    largest[row, part] = block.gather(1, index).squeeze(1)
                    where[row, part] = index.squeeze(1)
        if where is not None:
            for row in rows:  # from the number among the text's tokens to the position
                where[row] = mask[row].nonzero().squeeze(1).to(torch.int32)[where[row].long()]


def _argmax(block: torch.Tensor) -> torch.Tensor:
    """Return the first position of each row's largest value, (v, 1), int64, for logits (v, L) on a CPU.

    NumPy's argmax has vector instructions: measured 12 times as fast as torch.argmax and 9 times as torch.max with
    positions; it makes a twentieth of the time of the matrix product at d = 128. Half precision it does not know.
    """
    values = block if block.dtype in (torch.float32, torch.float64) else block.float()
    return torch.from_numpy(values.numpy().argmax(axis=1)).unsqueeze(1)


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


def _max_padded(
    hidden: torch.Tensor,
    mask: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    largest: torch.Tensor,
    where: torch.Tensor | None,
) -> None:
    """Fill ``largest`` and ``where`` on an accelerator: few large operations; padding is masked out of each block."""
    padding = ~mask.unsqueeze(-1)
    step = max(256, _CELLS_DEVICE // mask.numel())
    for start in range(0, len(weight), step):
        part = slice(start, start + step)
        logits = nn.functional.linear(hidden, weight[part], None if bias is None else bias[part])  # (B, L, v)
        logits = logits.masked_fill_(padding, -torch.inf)
        if where is None:
            largest[:, part] = logits.amax(dim=1)
        else:
            largest[:, part], where[:, part] = logits.max(dim=1)


@torch.inference_mode()
def splade_vectors(
    model: PreTrainedModel,
    head: Head,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    weight: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the vectors (B, V), float32, of ids (B, L) with a mask (B, L); equal to ``plain_pool`` of the logits.

    weight: the head's in the type to multiply in (bfloat16, say), which rounds the logits to it; by default its own.
    """
    hidden = projection_input(model, head, input_ids, attention_mask)
    return max_logits(hidden, attention_mask, head.weight if weight is None else weight, head.bias).relu_().log1p_()


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
