"""The SPLADE vector with gradients, without the logits (B, L, V): arXiv 2606.18811, Eq. 1 and 2, for training.

The forward is splade.py's: per block of the vocabulary, matrix product and maximum. It keeps the largest logit and
its position, (B, V) each. A maximum hands its gradient to one position, so the backward needs no other: with g the
gradient of the largest logits, (B, V), and p the positions, (B, V),

    gradient of weight[v]     = sum over b of g[b, v] hidden[b, p[b, v]]
    gradient of hidden[b, l]  = sum over v with p[b, v] = l of g[b, v] weight[v]
    gradient of bias[v]       = sum over b of g[b, v]

g is zero where the largest logit is not above 0 (ReLU). Two ways to the sums: ``_sparse`` takes the entries that are
above 0 one by one, ``_dense`` spreads g over (B, L, v) for a block of v terms and multiplies matrices. Chosen by the
share of such entries and by L.

At a tie of several positions the first gets the whole gradient. torch.amax would spread it evenly, torch.max and
sentence-transformers' pooling choose one, as here. Each is a subgradient; where the tied positions hold the same
numbers, the gradient of the weights is the same in all.

What is not here: losses and the trainer (train/), second derivatives, torch.func.

Letters: B texts, L positions, V vocabulary, v terms in a block, d width of the projection's input, n entries above 0.
"""

from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from pyserini_rescale.model import splade
from pyserini_rescale.model.head import Head

# What one active entry costs in the sparse way, in units of what one position of one term costs in the dense way. On a
# CPU measured: 8 to 13 for d = 128 and 256, so the dense way is for short texts. On an accelerator, where the matrix
# product is cheap, an estimate that is not measured: dense from an eighth of the entries up at L = 256.
_ENTRY_CPU = 10
_ENTRY_DEVICE = 2048

# Entries of a bag added up one after another in float32; sums of more are sums of such sums, so that rounding errors do
# not grow with the number of terms that one position wins.
_ADDED_IN_A_ROW = 256


def training_vectors(
    model: PreTrainedModel,
    head: Head,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    fused: bool = True,
) -> torch.Tensor:
    """Return the vectors (B, V), float32, of ids (B, L) with a mask (B, L), with gradients.

    head: ``find_head(model)``. fused: False takes the plain form, which makes the logits (B, L, V).

    The projection's parameters are used outside its own forward: fine for gradient checkpointing of layers, DDP (call this within
    the wrapped module's forward) and ZeRO stages 1 and 2, not for what hands out parameters module by module (stage 3).
    """
    if not fused:
        logits = model(input_ids=input_ids, attention_mask=attention_mask).logits
        return splade.plain_pool(logits, attention_mask)
    hidden = splade.projection_input(model, head, input_ids, attention_mask)
    return fused_pool(hidden, attention_mask, head.weight, head.bias)


def fused_pool(
    hidden: torch.Tensor, mask: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """Return log1p(relu(max over positions of hidden @ weight^T + bias)), (B, V), float32, with gradients.

    hidden (B, L, d), mask (B, L) that is 0 on padding, weight (V, d), bias (V) or None; any device and floating type.
    The product runs in weight's type, or in autocast's where that is on; the maximum's bias and all after it in float32
    (float64 weights: everything in float64). A text without tokens gives zeros and no gradient. NaN and inf in
    padding are not seen; in a token they come through.
    """
    inputs = (hidden, weight) if bias is None else (hidden, weight, bias)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        return _FusedPool.apply(hidden, mask, weight, bias)
    return splade.max_logits(hidden, mask, weight, bias).relu_().log1p_()


class _FusedPool(torch.autograd.Function):
    """``fused_pool`` with gradients. Autocast may be on or off in the backward: it makes no difference."""

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, mask: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        largest, where = splade.max_positions(hidden, mask, weight, bias)
        ctx.save_for_backward(hidden, mask, weight, largest, where)
        ctx.product = splade.product_type(weight)
        ctx.bias_dtype = None if bias is None else bias.dtype
        return largest.relu().log1p_()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        hidden, mask, weight, largest, where = ctx.saved_tensors
        need_hidden, _, need_weight, need_bias = ctx.needs_input_grad
        with torch.autocast(hidden.device.type, enabled=False):
            active = ~(largest <= 0)  # NaN is active: it must come through
            g = (gradient / (1 + largest)).masked_fill_(~active, 0)  # (B, V)
            of_hidden = of_weight = of_bias = None
            if need_hidden or need_weight:
                entry = _ENTRY_CPU if hidden.device.type == "cpu" else _ENTRY_DEVICE
                share = int(active.sum()) / max(1, active.numel())
                if share * entry <= hidden.shape[1]:  # without any position, too
                    of_hidden, of_weight = _sparse(g, active, where, hidden, weight, need_hidden, need_weight)
                else:
                    rounded = hidden.to(ctx.product), weight.to(ctx.product)
                    of_hidden, of_weight = _dense(g, where, mask, *rounded, need_hidden, need_weight)
                of_hidden = None if of_hidden is None else of_hidden.to(hidden.dtype)
                of_weight = None if of_weight is None else of_weight.to(weight.dtype)
            if need_bias:
                of_bias = g.sum(dim=0).to(ctx.bias_dtype)
        return of_hidden, None, of_weight, of_bias


def _sparse(
    g: torch.Tensor,
    active: torch.Tensor,
    where: torch.Tensor,
    hidden: torch.Tensor,
    weight: torch.Tensor,
    need_hidden: bool,
    need_weight: bool,
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Return the gradients of hidden (B, L, d) and weight (V, d) from the n active entries of g (B, V).

    Weighted sums of rows are what embedding_bag does: one bag per term, and one bag per position.
    """
    texts, positions, width = hidden.shape
    hidden, weight = hidden.to(g.dtype), weight.to(g.dtype)
    term, text = (part.contiguous() for part in active.T.nonzero(as_tuple=True))  # (n) each, sorted by term
    values = g[text, term]
    token = text * positions + where[text, term]  # (n): row of hidden as (B L, d)
    of_hidden = of_weight = None
    if need_weight:
        of_weight = _bags(token, term, values, hidden.reshape(texts * positions, width), len(weight))
    if need_hidden:
        token, order = token.sort(stable=True)
        of_hidden = _bags(term[order], token, values[order], weight, texts * positions).view(hidden.shape)
    return of_hidden, of_weight


def _bags(
    rows: torch.Tensor, bags: torch.Tensor, values: torch.Tensor, table: torch.Tensor, count: int
) -> torch.Tensor:
    """Return (count, d): for each bag the sum of values[i] * table[rows[i]] over the i with bags[i] = bag.

    rows, bags and values are (n), bags sorted.
    """
    if not len(rows):
        return table.new_zeros(count, table.shape[1])
    numbers = torch.arange(count, device=bags.device)
    place = torch.arange(len(rows), device=bags.device) - torch.searchsorted(bags, numbers)[bags]  # in its bag
    starts = (place % _ADDED_IN_A_ROW == 0).nonzero().squeeze(1)
    sums = nn.functional.embedding_bag(rows, table, starts, mode="sum", per_sample_weights=values)
    starts = torch.searchsorted(bags[starts], numbers)
    return nn.functional.embedding_bag(torch.arange(len(sums), device=bags.device), sums, starts, mode="sum")


def _dense(
    g: torch.Tensor,
    where: torch.Tensor,
    mask: torch.Tensor,
    hidden: torch.Tensor,
    weight: torch.Tensor,
    need_hidden: bool,
    need_weight: bool,
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Return the gradients of hidden (B, L, d) and weight (V, d), both of g's type, by matrix products."""
    texts, positions, width = hidden.shape
    hidden = hidden.masked_fill(~mask.bool().unsqueeze(-1), 0)  # 0 * NaN is NaN
    tokens = hidden.reshape(texts * positions, width)
    of_hidden = g.new_zeros(texts * positions, width) if need_hidden else None
    of_weight = g.new_empty(len(weight), width) if need_weight else None
    cells = splade._CELLS_CPU if g.device.type == "cpu" else splade._CELLS_DEVICE
    step = max(256, cells // max(1, texts * positions))
    for start in range(0, len(weight), step):
        part = slice(start, start + step)
        at = where[:, None, part].long()  # (B, 1, v)
        spread = hidden.new_zeros(texts, positions, at.shape[2])
        spread = spread.scatter_(1, at, g[:, None, part].to(hidden.dtype)).view(texts * positions, -1)
        if of_weight is not None:
            of_weight[part] = spread.T @ tokens
        if of_hidden is not None:
            of_hidden += spread @ weight[part]
    return (None if of_hidden is None else of_hidden.view(hidden.shape)), of_weight
