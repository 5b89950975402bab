"""Choose a rescale factor k and a bias offset for a head, and apply them: the rules behind ``head suggest`` and
``auto``.

Everything is measured at initialisation, from one pass of a few texts through the model (pooled.py). The paper
(arXiv 2606.18811) finds k by training once per value, and leaves an adaptive choice open; this is ours.

The rule for k
    The smallest k of ``FACTORS`` at which the in-batch loss is at most ``LOSS_LIMIT`` times ln(candidates), and queries
    and documents still have ``FEW`` terms after quantisation (see diagnose.py for both). Smallest, because every
    further division only makes weights small: past the point where the softmax is no longer saturated, nothing is
    gained, and terms fall below half a step of the quantiser one by one.

The rule for k with an offset
    The offset is chosen anew at each k, so the share of active terms is met at all of them, and k is left with the scale
    alone. It is then what temperature scaling (Guo et al. 2017, arXiv 1706.04599) makes of a classifier: the in-batch
    loss has a least value; at smaller k scores are too sure, at larger ones too small to tell texts apart. Taken is the
    smallest k whose loss is at most ``NEAR_LEAST`` times the least, since the curve is flat around it and a few texts
    do not say where exactly its bottom is. The limits above hold too.

The rule for the recommendation
    The first of these that is healthy: the head as it is; a constant offset and the k that goes with it; a constant
    offset alone; k alone. A constant offset comes first because the masked-LM does not see it and because it makes
    vectors sparse, which k does not; per-term offsets are in the table, not recommended, since they rest on many texts
    of the collection. What training makes of them: docs/evidence.md.

Scope
    balanced where the backbone has a row in the table and a tied head: hidden states stay, so what was measured is what
    is trained. untied elsewhere, for the same reason. shared is the paper's, and for its own figures only.

Where it fails. Loss and sparsity at the start do not decide what training makes of a model: the paper's BERT trains
well at k = 1 whatever its start, and its RoBERTa and ModernBERT prefer different k for different test sets. More
candidates or longer texts raise the loss, so k depends on the texts, weakly. Under scope shared, hidden states move
with k and the figures for k > 1 are only near; what the command reports after the rescale is measured on the rescaled
model.

Letters: N texts, V vocabulary.
"""

import dataclasses
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pyserini_rescale.errors import ConfigError, DataError, ModelError
from pyserini_rescale.model.diagnose import FEW, LOSS_LIMIT, Diagnosis, diagnose, in_batch_loss
from pyserini_rescale.model.head import check_factor, find_head, probe_ids, rescale_head, stored_policy
from pyserini_rescale.model.offset import (
    Offset,
    apply_offset,
    check_can_offset,
    check_offset,
    check_target,
    choose_offset,
)
from pyserini_rescale.model.policy import SCOPES, TARGET_ACTIVE, Policy
from pyserini_rescale.model.pooled import Pooled, hidden_states, pool_texts, relative_movement, token_ids, usable_length
from pyserini_rescale.model.texts import Texts, builtin_texts

AUTO = "auto"

FACTORS = (
    1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256,
)  # fmt: skip
"""The k that are tried: steps of a quarter or so, far beyond the paper's 16."""

NEAR_LEAST = 1.05
"""How near to the least in-batch loss a k is good enough, where there is an offset."""

_NO_TOKENIZER = "this model has no tokenizer, and texts are needed: give numbers instead of auto and per-term"
_SHOWN = (2, 4, 8, 16, 32, 64)  # rows of the table for k alone, whatever is chosen


@dataclasses.dataclass(frozen=True)
class Setting:
    """One row of the table of ``suggest``: a k, an offset or None, and the figures that they give."""

    k: float
    offset: Offset | None
    diagnosis: Diagnosis

    def name(self) -> str:
        """Return the setting in a few words."""
        parts = [] if self.k == 1 else [f"k = {self.k:g}"]
        if self.offset is not None:
            parts.append(f"{self.offset.rule} offset, {self.offset.target_active:.3g} active")
        return ", ".join(parts) or "as it is"


@dataclasses.dataclass(frozen=True)
class Suggestion:
    """What ``suggest`` measured and recommends; recommended is one of settings, or None if none is healthy."""

    scope: str
    settings: tuple[Setting, ...]
    recommended: Setting | None


@dataclasses.dataclass(frozen=True)
class Calibration:
    """What ``calibrate_head`` did: the policy that the model carries now, how far hidden states moved (relative L2
    norm, on the texts), and the figures before and after; no figures where they were not asked for."""

    policy: Policy
    movement: float
    before: Diagnosis | None = None
    after: Diagnosis | None = None


def recommended_scope(model: PreTrainedModel) -> str:
    """Return the scope under which hidden states stay what they are: balanced where there is one, else untied."""
    head = find_head(model)
    return "balanced" if head.tied and head.backbone is not None else "untied"


def choose_factor(
    pooled: Pooled, *, offset_rule: str | None = None, share: float = TARGET_ACTIVE, rescale_bias: bool = False
) -> float | None:
    """Return k by the module's rules, that for k alone or that for k with an offset, or None if no k of ``FACTORS`` does.

    Raises DataError if the texts hold fewer than two pairs, from which no loss can be had.
    """
    _check_pairs(pooled)
    good: dict[float, float] = {}
    for k in FACTORS:
        offset = None if offset_rule is None else _offset_at(pooled, k, offset_rule, share, rescale_bias)
        total = 0.0 if offset is None else offset.total()
        loss = _loss(pooled, k, rescale_bias, total)
        if loss <= LOSS_LIMIT * _chance(pooled):
            figures = diagnose(pooled, k, rescale_bias=rescale_bias, offset=total)
            if all(side is not None and side.indexed >= FEW for side in (figures.queries, figures.documents)):
                if offset is None:
                    return float(k)
                good[float(k)] = loss
    return next((k for k, loss in good.items() if loss <= NEAR_LEAST * min(good.values())), None)


def suggest(
    model: PreTrainedModel, pooled: Pooled, *, share: float = TARGET_ACTIVE, rescale_bias: bool = False
) -> Suggestion:
    """Return the table of settings for ``model`` on ``pooled`` texts, and the recommended one.

    Raises ModelError if the model was rescaled or given an offset already, ConfigError and DataError for a share or
    texts from which nothing can be told.
    """
    _check_untouched(model)
    check_target(share)
    _check_pairs(pooled)

    def setting(k: float, rule: str | None) -> Setting:
        offset = None if rule is None else _offset_at(pooled, k, rule, share, rescale_bias)
        total = 0.0 if offset is None else offset.total()
        return Setting(float(k), offset, diagnose(pooled, k, rescale_bias=rescale_bias, offset=total))

    as_is = setting(1, None)
    k_alone = choose_factor(pooled, rescale_bias=rescale_bias)
    alone = [setting(k, None) for k in sorted({*_SHOWN, *([k_alone] if k_alone else [])} - {1})]
    shifted: dict[str, list[Setting]] = {}
    if pooled.bias is not None:
        for rule in ("auto", "per-term"):
            k = choose_factor(pooled, offset_rule=rule, share=share, rescale_bias=rescale_bias)
            shifted[rule] = [setting(1, rule)] + ([setting(k, rule)] if k is not None and k != 1 else [])
    order = [as_is, *reversed(shifted.get("auto", ())), *(s for s in alone if s.k == k_alone)]
    return Suggestion(
        scope=recommended_scope(model),
        settings=(as_is, *alone, *shifted.get("auto", ()), *shifted.get("per-term", ())),
        recommended=next((s for s in order if s.diagnosis.verdict == "healthy"), None),
    )


def check_request(
    *,
    factor: float | str | None,
    scope: str | None,
    rescale_bias: bool,
    bias_offset: float | str | None,
    target_active: float,
) -> None:
    """Raise ConfigError for arguments of ``calibrate_head`` that no model could make sense of."""
    if factor is None and bias_offset is None:
        raise ConfigError("there is nothing to do: give a factor, a bias offset, or both")
    if isinstance(factor, str) and factor != AUTO:
        raise ConfigError(f"factor {factor!r} is unknown: give a number above 0, or auto")
    if factor is not None and not isinstance(factor, str):
        check_factor(factor)
    if scope is not None and scope not in SCOPES:
        raise ConfigError(f"scope {scope!r} is unknown: use one of {', '.join(SCOPES)}")
    if rescale_bias and factor is None:
        raise ConfigError("the bias is rescaled by the factor, and there is none: give one")
    if bias_offset is not None:
        check_offset(bias_offset)
    check_target(target_active)


def calibrate_head(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    *,
    factor: float | str | None = None,
    scope: str | None = None,
    rescale_bias: bool = False,
    bias_offset: float | str | None = None,
    target_active: float = TARGET_ACTIVE,
    texts: Texts | None = None,
    length: int | None = None,
) -> Calibration:
    """Rescale the head of ``model`` by ``factor``, then give it a bias offset, in place; return what was done.

    factor: a number, "auto" (``choose_factor``) or None for none. scope: as in ``rescale_head``; ``recommended_scope``
    if None. bias_offset: a number, "auto", "per-term" (offset.py) or None for none. target_active: share of the
    vocabulary active per document, for the latter two. texts: what is measured on, the built-in pairs if None. length:
    tokens a text is cut to. Without a tokenizer only numbers can be used, and the movement of the hidden states is
    measured on a fixed handful of token ids.

    Raises ConfigError, DataError or ModelError, before anything is changed, for whatever cannot be done.
    """
    check_request(
        factor=factor, scope=scope, rescale_bias=rescale_bias, bias_offset=bias_offset, target_active=target_active
    )
    measured = factor == AUTO or isinstance(bias_offset, str)
    if tokenizer is None and (measured or texts is not None):
        raise ModelError(_NO_TOKENIZER)
    if bias_offset is not None:
        check_can_offset(model)
    texts = texts or builtin_texts()
    if tokenizer is None:
        sequences, before = probe_ids(model), None
    else:
        cut = usable_length(model, tokenizer, length, (stored_policy(model) or Policy()).document_length)
        sequences = token_ids(model, tokenizer, texts.documents, cut)
        before = pool_texts(model, tokenizer, texts, length)
    old_figures = None if before is None else diagnose(before)
    old_hidden = hidden_states(model, sequences)
    if isinstance(bias_offset, str):
        _offset_at(
            _needed(before), 1, bias_offset, target_active, False
        )  # raises what it would raise, before any change
    k = _factor(before, factor, bias_offset, target_active, rescale_bias)
    if k is not None:
        rescale_head(model, k, scope=scope or recommended_scope(model), rescale_bias=rescale_bias)
    movement = 0.0 if k is None else relative_movement(old_hidden, hidden_states(model, sequences))
    after = before if tokenizer is None or k is None else pool_texts(model, tokenizer, texts, length)
    if bias_offset is not None:
        offset = (
            _offset_at(_needed(after), 1, bias_offset, target_active, False)
            if isinstance(bias_offset, str)
            else Offset(float(bias_offset), "constant")
        )
        apply_offset(model, offset)
        bias = find_head(model).bias
        if after is not None and bias is not None:
            after = dataclasses.replace(after, bias=bias.detach().float().cpu().clone())
    return Calibration(
        policy=stored_policy(model) or Policy(),
        movement=movement,
        before=old_figures,
        after=None if after is None else diagnose(after),
    )


def _factor(
    pooled: Pooled | None, factor: float | str | None, bias_offset: float | str | None, share: float, rescale_bias: bool
) -> float | None:
    if not isinstance(factor, str):
        return factor
    if isinstance(bias_offset, (int, float)):
        raise ConfigError("factor auto goes with bias offset auto or per-term: an offset in numbers belongs to one k")
    k = choose_factor(_needed(pooled), offset_rule=bias_offset, share=share, rescale_bias=rescale_bias)
    if k is None:
        raise ModelError(
            f"no k from {FACTORS[0]:g} to {FACTORS[-1]:g} brings the in-batch loss below {LOSS_LIMIT:g} ln(candidates) "
            f"and leaves {FEW:g} terms: look at `head suggest`, and give numbers"
        )
    return k


def _needed(pooled: Pooled | None) -> Pooled:
    if pooled is None:
        raise ModelError(_NO_TOKENIZER)
    return pooled


def _offset_at(pooled: Pooled, k: float, rule: str, share: float, rescale_bias: bool) -> Offset:
    return choose_offset(pooled.logits(pooled.documents, k, rescale_bias), rule, share)


def _loss(pooled: Pooled, k: float, rescale_bias: bool, offset: torch.Tensor | float) -> float:
    queries, candidates = (
        pooled.logits(products, k, rescale_bias, offset).relu_().log1p_()
        for products in (pooled.queries, pooled.candidates)
    )
    return in_batch_loss(queries @ candidates.T)


def _chance(pooled: Pooled) -> float:
    return float(torch.tensor(float(len(pooled.candidates)), dtype=torch.float64).log())


def _check_pairs(pooled: Pooled) -> None:
    if len(pooled.queries) < 2:
        raise DataError(
            "the texts hold fewer than two pairs that differ, so there is no loss (single texts need two words): give more texts"
        )


def _check_untouched(model: PreTrainedModel) -> None:
    policy = stored_policy(model)
    if policy is not None and (policy.scope is not None or policy.offset_rule is not None):
        raise ModelError("this model was calibrated already: start from the original checkpoint, or undo it")


def settings_as_dicts(suggestion: Suggestion) -> list[dict[str, Any]]:
    """Return the table as values for JSON; a per-term offset is there with its constant only."""
    return [
        {
            "k": s.k,
            "offset_rule": s.offset and s.offset.rule,
            "offset_constant": s.offset and s.offset.constant,
            "recommended": s is suggestion.recommended,
            **s.diagnosis.to_dict(),
        }
        for s in suggestion.settings
    ]
