"""The SPLADE vector of a text: log1p(ReLU(logits)), maximum over positions (arXiv 2606.18811, Eq. 1 and 2).

Two forms of the same thing: ``plain_pool`` takes the logits (B, L, V) and is the reference; ``splade_vectors`` never
makes them. It takes the projection's input (B, L, d), drops the padding, multiplies a block of the vocabulary with a
few texts' tokens at a time and keeps the maximum per text. Bias, ReLU and log1p follow the maximum: all three are
monotone, also when rounded, so that changes nothing.

``ScreenedHead`` is a shorter way to the same vectors for many documents on a CPU: terms that a bound in fewer dimensions
shows to be inactive are not multiplied out.

The blocks are shared with training: ``max_positions`` says where each maximum is, which is all that the gradients in
fused.py need. What is not here: gradients, tokens (encode/encoder.py), impacts (encode/quantize.py).

Letters: B texts, L positions, T tokens without padding (the sum of the texts' lengths), V vocabulary, d width of the
projection's input.
"""

import dataclasses
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

# A screen is made once a head has seen so many tokens (it costs as much as 2 d of them), for the best of these shares of
# d, if the work that is left is then less than this share. Measured for splade-tiny: 5/8, with 7 % of the terms left.
_SCREEN_AFTER = 2**13
_SCREEN_SHARES = (3 / 8, 1 / 2, 9 / 16, 5 / 8, 11 / 16, 3 / 4)
_SCREEN_PAYS = 0.9
_SCREEN_REST = 1.3
"""What a term costs that is left, in units of what it costs without a screen: it is gathered, and few come at a time."""


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
    What half-precision weights leave of a float32 bias is added afterwards; autocast rounds it, as it does in the plain
    form. Raises ValueError for a mask of another shape.
    """
    if mask.shape != hidden.shape[:2]:
        raise ValueError(f"a mask of shape {tuple(mask.shape)} does not fit hidden states {tuple(hidden.shape)}")
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
    if mask.numel():
        with torch.autocast(hidden.device.type, enabled=False):
            blocks(hidden.to(product), mask.bool(), weight.to(product), inner, largest, where)
    if bias is not None:
        rest = bias.to(largest.dtype)
        if inner is None:
            largest.add_(rest)
        elif weight.dtype == product:
            largest.add_(rest - inner.to(largest.dtype))
        largest[~mask.bool().any(dim=1)] = -torch.inf  # also where the bias is infinite or no number
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


@dataclasses.dataclass(frozen=True)
class _Screen:
    """An upper bound of every logit that costs r + 3 multiplications instead of d.

    With A and B square and A B^T = I, a logit without bias is (h A) . (w B). Of that product the first r columns are
    multiplied out, the others bounded by the product of their norms (Cauchy-Schwarz). A and B are chosen so that as
    little as may be is in the others; any other choice would be as right. Two more columns cover the rounding: one that
    of the bound, one that of the logit itself, which is multiplied out in float32 too. A and B may be far from
    orthogonal, so h A and w B, where much cancels, are made in float64.
    """

    turn: torch.Tensor  # A (d, d), float64
    right: torch.Tensor  # (V, r + 3)

    def left(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return (T, r + 3) for tokens (T, d): times ``right``^T it is the bound."""
        turned = (tokens.double() @ self.turn).to(tokens.dtype)
        size = self.right.shape[1] - 3
        return torch.cat([turned[:, :size], _norm(turned[:, size:]), _norm(turned), _norm(tokens)], dim=1)


def _norm(rows: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(rows, dim=1, keepdim=True)


def _make_screen(tokens: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> _Screen | None:
    """Return the screen that leaves the least work for texts like ``tokens`` (T, d), or None where none pays.

    A and B give the tokens and the weights one and the same second moment, diagonal and descending.
    """
    width = weight.shape[1]
    values, vectors = torch.linalg.eigh((tokens.T @ tokens).double() / len(tokens))
    values = values.clamp_min(1e-6 * float(values.max()))
    root, inverse = ((vectors * values**power) @ vectors.T for power in (0.5, -0.5))
    values, vectors = torch.linalg.eigh(root @ ((weight.T @ weight).double() / len(weight)) @ root)
    values, vectors = values.flip(0), vectors.flip(1)
    values = values.clamp_min(1e-9 * float(values.max())) ** 0.25
    turn = inverse @ vectors * values
    back = root @ vectors / values  # B
    turned = torch.cat([(part.double() @ back).to(weight.dtype) for part in weight.split(2**12)])  # (V, d)
    if not (torch.isfinite(turn).all() and torch.isfinite(turned).all()):
        return None
    # Eight times the worst case of adding up d products in float32.
    rounding = 1e-6 * width * torch.cat([_norm(turned), _norm(weight)], dim=1)
    some = slice(None, None, max(1, len(weight) // 2048))
    best, least = None, _SCREEN_PAYS
    for share in _SCREEN_SHARES:
        size = int(share * width)
        right = torch.cat([turned[:, :size], _norm(turned[:, size:]), rounding], dim=1)
        largest = (right[some] @ _Screen(turn, right).left(tokens[:_TOKENS_AT_ONCE]).T).amax(dim=1)
        if bias is not None:
            largest += bias[some]
        work = right.shape[1] / width + _SCREEN_REST * float((largest > 0).float().mean())
        if work < least:
            best, least = _Screen(turn, right), work
    return best


class ScreenedHead:
    """A head that leaves out, for a few texts at a time, the terms none of whose logits can be above 0.

    For float32 on a CPU and calls of many tokens; anything else goes to ``max_logits`` as it is. The screen is made from
    the texts themselves, once enough have been seen, again if the weights are changed (a change through ``.data`` is
    noticed by a few hundred rows), and not at all where it does not pay. Which texts it was made from changes the work and not the result.
    """

    def __init__(self, head: Head) -> None:
        self._head = head
        self._screen: _Screen | None = None
        self._made_for: tuple[int, int | None, float] | None = None
        self._seen = 0

    @torch.no_grad()
    def max_logits(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return ``max_logits``, (B, V), with -inf in place of logits that are not above 0 (of some, not of all)."""
        weight, bias = self._head.weight, self._head.bias
        number = int(mask.sum())
        usual = hidden.device.type == "cpu" and product_type(weight) == hidden.dtype == torch.float32
        if not usual or number < _TOKENS_AT_ONCE // 4:
            return max_logits(hidden, mask, weight, bias)
        self._seen += number
        sample = weight.detach()[:: max(1, len(weight) // 256)]
        version = None if weight.is_inference() else weight._version
        made_for = (weight.data_ptr(), version, float(sample.double().sum()))
        if self._made_for != made_for:
            self._screen = None
            if self._seen >= _SCREEN_AFTER and number >= 2 * weight.shape[1]:
                self._screen, self._made_for = _make_screen(hidden[mask.bool()], weight, bias), made_for
        if self._screen is None:
            return max_logits(hidden, mask, weight, bias)
        largest = torch.full((len(hidden), len(weight)), -torch.inf, dtype=weight.dtype, device=weight.device)
        _max_screened(hidden, mask.bool(), weight, bias, self._screen, largest)
        if bias is not None:
            largest.add_(bias)
            largest[~mask.bool().any(dim=1)] = -torch.inf
        return largest


def _max_screened(
    hidden: torch.Tensor,
    mask: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    screen: _Screen,
    largest: torch.Tensor,
) -> None:
    """Fill ``largest``, without bias, where a text of the same few may have the term; all in float32 on a CPU."""
    lengths = mask.sum(dim=1).tolist()
    for rows in _groups(lengths, _TOKENS_AT_ONCE):
        tokens = hidden[rows][mask[rows]]  # (T, d)
        left = screen.left(tokens)
        step = max(256, _CELLS_CPU // len(tokens))
        bound = torch.cat([torch.mm(part, left.T).amax(dim=1) for part in screen.right.split(step)])  # (V)
        if bias is not None:
            bound += bias
        terms = (~(bound <= 0)).nonzero().squeeze(1)  # NaN is among them: it must come through
        found = weight.new_empty(len(rows), len(terms))
        for start in range(0, len(terms), step):
            logits = torch.mm(weight[terms[start : start + step]], tokens.T)
            for place, block in enumerate(logits.split([lengths[row] for row in rows], dim=1)):
                found[place, start : start + step] = block.amax(dim=1)
        for place, row in enumerate(rows):
            largest[row, terms] = found[place]


@torch.inference_mode()
def splade_vectors(
    model: PreTrainedModel,
    head: Head,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    weight: torch.Tensor | None = None,
    screened: ScreenedHead | None = None,
) -> torch.Tensor:
    """Return the vectors (B, V), float32, of ids (B, L) with a mask (B, L); equal to ``plain_pool`` of the logits.

    weight: the head's in the type to multiply in (bfloat16, say), which rounds the logits to it; by default its own.
    screened: the same head with a screen, which is for many documents; not with ``weight``.
    """
    hidden = projection_input(model, head, input_ids, attention_mask)
    if screened is not None:
        return screened.max_logits(hidden, attention_mask).relu_().log1p_()
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
