"""Texts through a head, pooled once, so that any k and any offset can be tried without the model.

The logit of term j at a position with projection input x is x . w_j + b_j. SPLADE's maximum over positions
(arXiv 2606.18811, Eq. 2) commutes with adding b_j and with dividing by k > 0, so with

    p_j = max over positions of x . w_j

the pooled logit is p_j + b_j as the model stands, and p_j / k + b_j - offset_j after a rescale that leaves the hidden
states alone (scopes balanced and untied) and an offset. For scope shared that is exact only where hidden states do not
move.

Letters: N texts, Q queries, C candidates, T tokens, V vocabulary, d width.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pyserini_rescale.errors import ConfigError, DataError, ModelError
from pyserini_rescale.model.head import find_head, position_limit, stored_policy
from pyserini_rescale.model.policy import Policy
from pyserini_rescale.model.splade import max_logits, micro_batches, pad, projection_input
from pyserini_rescale.model.texts import Texts

LENGTH = 256
"""Tokens a text is cut to where neither the caller nor the checkpoint's policy says otherwise; the paper's."""

_TEXTS_AT_ONCE = 32
_TOKENS_AT_ONCE = 4096


@dataclasses.dataclass(frozen=True)
class Pooled:
    """Products p of one set of texts, float32 on the CPU, and what is needed to make impacts of them.

    queries (Q, V). candidates (C, V): passages in the order of their queries, then hard negatives. documents (N, V):
    what the share of active terms is taken of; the same tensor as candidates for pairs. bias (V) or None. special: ids
    of special tokens. policy: the checkpoint's, or the defaults.
    """

    queries: torch.Tensor
    candidates: torch.Tensor
    documents: torch.Tensor
    bias: torch.Tensor | None
    special: tuple[int, ...]
    policy: Policy

    def logits(
        self, products: torch.Tensor, k: float = 1.0, rescale_bias: bool = False, offset: torch.Tensor | float = 0.0
    ) -> torch.Tensor:
        """Return the pooled logits (N, V) of ``products`` (N, V) for a k and an offset, a number or (V)."""
        logits = products / k
        if self.bias is not None:
            logits += self.bias / k if rescale_bias else self.bias
        return logits.sub_(offset)


def pool_texts(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Texts, length: int | None = None
) -> Pooled:
    """Run ``texts`` through ``model`` once and return what there is to know about them.

    length: tokens a text is cut to. Raises ConfigError for a length that cannot be used, DataError for a text without
    tokens, ModelError for a tokenizer that does not go with the model, or logits that are not finite.
    """
    head = find_head(model)
    policy = stored_policy(model) or Policy()
    query_length = usable_length(model, tokenizer, length, policy.query_length)
    document_length = usable_length(model, tokenizer, length, policy.document_length)
    queries = products(model, token_ids(model, tokenizer, texts.queries, query_length))
    documents = products(model, token_ids(model, tokenizer, texts.documents, document_length))
    candidates = documents
    if texts.halved:
        candidates = products(model, token_ids(model, tokenizer, texts.passages, document_length))
    size = head.weight.shape[0]
    return Pooled(
        queries=queries,
        candidates=candidates,
        documents=documents,
        bias=None if head.bias is None else head.bias.detach().float().cpu().clone(),
        special=tuple(sorted(number for number in set(tokenizer.all_special_ids) if number < size)),
        policy=policy,
    )


def usable_length(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, asked: int | None, stored: int | None = None
) -> int:
    """Return the length to cut texts to: the one asked for, the policy's or ``LENGTH``; never beyond the model's."""
    limit = position_limit(model)
    if asked is not None and limit is not None and asked > limit:
        raise ConfigError(f"a length of {asked} tokens is beyond the {limit} positions of this model: ask for fewer")
    length = asked if asked is not None else stored or LENGTH
    length = length if limit is None else min(length, limit)
    reserved = tokenizer.num_special_tokens_to_add()
    if length <= reserved:
        raise ConfigError(
            f"a length of {length} leaves no room for text beside {reserved} special tokens: ask for more"
        )
    return length


def token_ids(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], length: int
) -> list[list[int]]:
    """Return the token ids of each text, special ones included, cut to ``length``."""
    if not texts:
        return []
    sequences = tokenizer(
        list(texts), truncation=True, max_length=length, return_attention_mask=False, return_token_type_ids=False
    )["input_ids"]
    size = model.config.vocab_size
    for text, sequence in zip(texts, sequences, strict=True):
        if not sequence:
            raise DataError(f"a text has no token for this tokenizer: {text!r:.60}")
        if max(sequence) >= size:
            raise ModelError(
                f"the tokenizer gives ids beyond the model's {size} vocabulary entries: it is another model's"
            )
    return sequences


def _batches(sequences: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    return micro_batches([len(sequence) for sequence in sequences], _TEXTS_AT_ONCE, _TOKENS_AT_ONCE)


@torch.inference_mode()
def products(model: PreTrainedModel, sequences: Sequence[Sequence[int]]) -> torch.Tensor:
    """Return p (N, V), float32 on the CPU: per text and term, the largest product over positions, without the bias."""
    head = find_head(model)
    result = torch.empty(len(sequences), head.weight.shape[0])
    for rows in _batches(sequences):
        ids, mask = (part.to(model.device) for part in pad([sequences[row] for row in rows], _filler(model)))
        hidden = projection_input(model, head, ids, mask)
        result[rows] = max_logits(hidden, mask, head.weight, None).cpu()
    if not torch.isfinite(result).all():
        raise ModelError("the model's logits are not finite: the checkpoint is damaged, or k far too large")
    return result


@torch.inference_mode()
def hidden_states(model: PreTrainedModel, sequences: Sequence[Sequence[int]]) -> torch.Tensor:
    """Return what the projection is fed with, (T, d) float32 on the CPU, for all tokens of all sequences."""
    head = find_head(model)
    parts = []
    for rows in _batches(sequences):
        ids, mask = (part.to(model.device) for part in pad([sequences[row] for row in rows], _filler(model)))
        parts.append(projection_input(model, head, ids, mask)[mask.bool()].float().cpu())
    return torch.cat(parts)


def relative_movement(before: torch.Tensor, after: torch.Tensor) -> float:
    """Return |after - before| / |before|, L2 norms over all entries."""
    return float((after.double() - before.double()).norm() / before.double().norm())


def _filler(model: PreTrainedModel) -> int:
    pad_id = getattr(model.config, "pad_token_id", None)
    return pad_id if isinstance(pad_id, int) and 0 <= pad_id < model.config.vocab_size else 0
