"""Subtract from the decoder bias what makes SPLADE's vectors sparse at the start.

Why. A masked-LM softmax is the same for z and z - C, so pre-training leaves the level of the logits where it happens to
be. SPLADE's ReLU cuts at zero, and the level decides how many terms are active: where the maximum over positions is
above zero for nearly every term, vectors start dense. Dividing by k keeps the signs of x . w_j, so it makes weights
small, not few; a constant C in the bias makes them few. The idea and both rules are ours, not the paper's; they rest on
small trials.

auto
    Let z_ij be the pooled logit of term j in document i (maximum over positions, bias included, after k). Subtracting C
    leaves exactly the terms with z_ij > C active. Their share over all i and j falls with C in steps, so the C for a
    share s of N * V values is a quantile: anything between the m-th and the (m+1)-th largest, m = round(s * N * V). We
    take the middle. No search, no iteration; exact up to ties.
per-term
    First subtract each term's own mean over the documents, mean_i z_ij, then a constant by the rule above. All terms
    then have the same level, and a term is active where it stands out for that term: what every text activates
    (punctuation, function words, the backbone's habits) goes. The bias cancels out of it, as does the order of terms by
    frequency.

What the masked-LM sees. Of a constant: nothing, its probabilities stay what they were. Of per-term offsets: they change
its probabilities, so a model calibrated so should not be trained further as a masked language model.

Where they fail. The share is met on the texts given, and only there: other texts, longer ones above all, have other
shares (a maximum over more positions is larger). The share says how many terms are active, not which. Rare strong terms
can share a level with noise, and a per-term mean over a few texts is noise itself (of its size: the standard deviation
over the root of their number), and removes the subject that all given texts share, even if the collection's texts do
not. The target of 1.5 % is that of trained SPLADE models by order of magnitude, not an optimum. Heads without a bias
have nothing to subtract from: refused.

Letters: N texts, V vocabulary.
"""

import dataclasses
import math

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from pyserini_rescale.errors import ConfigError, ModelError
from pyserini_rescale.model import term_offsets
from pyserini_rescale.model.head import find_head, separate_twin, stored_policy
from pyserini_rescale.model.policy import KEY, OFFSET_RULES, TARGET_ACTIVE, TERM_OFFSETS_FILE, Policy


@dataclasses.dataclass(frozen=True)
class Offset:
    """What is subtracted from the decoder bias: ``terms`` (V), or None, then ``constant``. rule: how it was chosen."""

    constant: float
    rule: str
    terms: torch.Tensor | None = None
    target_active: float | None = None

    def total(self) -> torch.Tensor | float:
        """Return everything that is subtracted, a number or (V)."""
        return self.constant if self.terms is None else self.terms + self.constant


def check_target(share: float) -> None:
    """Raise ConfigError unless ``share`` is a share that a target can be."""
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share < 1:
        raise ConfigError(
            f"a target share of {share!r} cannot be used: it is a number between 0 and 1, for example 0.015"
        )


def check_offset(asked: float | str) -> None:
    """Raise ConfigError unless ``asked`` is a finite number, "auto" or "per-term"."""
    if isinstance(asked, str):
        if asked not in OFFSET_RULES[1:]:
            raise ConfigError(f"bias offset {asked!r} is unknown: give a number, auto or per-term")
    elif isinstance(asked, bool) or not isinstance(asked, (int, float)) or not math.isfinite(asked):
        raise ConfigError(f"bias offset {asked!r} cannot be used: it is a finite number, auto or per-term")


def choose_offset(logits: torch.Tensor, rule: str, share: float = TARGET_ACTIVE) -> Offset:
    """Return the offset that leaves ``share`` of the pooled logits (N, V) above zero; rule "auto" or "per-term".

    Raises ConfigError for a share that is less than one term of all these texts, or leaves none out, and for per-term
    with a single text, whose mean it would be.
    """
    check_target(share)
    terms = None
    if rule == "per-term":
        if len(logits) < 2:
            raise ConfigError("a per-term offset needs the mean over several texts, and there is one: give more texts")
        terms = logits.mean(dim=0, dtype=torch.float64).float()
        logits = logits - terms
    return Offset(constant=constant_for_share(logits, share), rule=rule, terms=terms, target_active=float(share))


def constant_for_share(logits: torch.Tensor, share: float) -> float:
    """Return C such that ``share`` of the values of ``logits`` (N, V) are above C: the module's quantile."""
    values = logits.numpy().ravel()
    count = round(share * values.size)
    if not 0 < count < values.size:
        raise ConfigError(
            f"a target share of {share:g} is {count} of {values.size:,} terms here: choose another, or more texts"
        )
    at = values.size - count - 1
    ordered = np.partition(values, (at, at + 1))
    return (float(ordered[at]) + float(ordered[at + 1])) / 2


def apply_offset(model: PreTrainedModel, offset: Offset) -> Policy:
    """Subtract ``offset`` from the decoder bias of ``model``, in place and once; return the policy now in its config.

    After a rescale, if there is one. Raises ModelError where there is no bias, or an offset already, ConfigError for
    one that is not finite; nothing is changed then.
    """
    policy = stored_policy(model) or Policy()
    bias = check_can_offset(model)
    if offset.rule not in OFFSET_RULES:
        raise ConfigError(f"offset rule {offset.rule!r} is unknown: use one of {', '.join(OFFSET_RULES)}")
    if not math.isfinite(offset.constant) or (offset.terms is not None and not torch.isfinite(offset.terms).all()):
        raise ConfigError(f"a bias offset of {offset.constant} cannot be used: offsets are finite numbers")
    terms = None if offset.terms is None else offset.terms.detach().float().cpu()
    if terms is not None and terms.shape != bias.shape:
        raise ConfigError(f"{terms.numel():,} per-term offsets do not go with {bias.numel():,} terms")
    _subtract(model, bias, terms, offset.constant)
    stored = None if terms is None else terms.numpy()
    term_offsets.attach(model, stored)
    policy = dataclasses.replace(
        policy,
        bias_offset=float(offset.constant),
        offset_rule=offset.rule,
        target_active=offset.target_active,
        term_offsets=None if stored is None else term_offsets.checksum(stored),
    )
    setattr(model.config, KEY, policy.to_dict())
    return policy


def check_can_offset(model: PreTrainedModel) -> nn.Parameter:
    """Return the decoder bias (V); raises ModelError unless there is one from which nothing was subtracted yet."""
    policy = stored_policy(model)
    if policy is not None and policy.offset_rule is not None:
        raise ModelError(
            f"this model has a bias offset already ({policy.offset_rule}): start from the original, or undo it"
        )
    bias = find_head(model).bias
    if bias is None:
        raise ModelError(
            f"the head of {type(model).__name__} has no bias to subtract from: rescale it by a factor instead"
        )
    return bias


def remove_offset(model: PreTrainedModel) -> None:
    """Add back what the policy says was subtracted, in place; raises ModelError if its per-term part is lost."""
    policy = stored_policy(model)
    if policy is None or policy.offset_rule is None:
        return
    bias, terms = find_head(model).bias, term_offsets.attached(model)
    if bias is None:
        raise ModelError("config.json speaks of a bias offset, and the head has no bias: take both from one checkpoint")
    if policy.term_offsets is not None and terms is None:
        raise ModelError(
            f"{TERM_OFFSETS_FILE} is not beside the weights: without it the per-term offsets cannot be undone"
        )
    _subtract(model, bias, None if terms is None else torch.from_numpy(-terms), -policy.bias_offset)
    term_offsets.attach(model, None)
    policy = dataclasses.replace(policy, bias_offset=0.0, offset_rule=None, target_active=None, term_offsets=None)
    setattr(model.config, KEY, policy.to_dict())


def _subtract(model: PreTrainedModel, bias: nn.Parameter, terms: torch.Tensor | None, constant: float) -> None:
    with torch.no_grad():
        shifted = bias.double() - constant
        if terms is not None:
            shifted -= terms.to(shifted.device)
        bias.copy_(shifted)
    separate_twin(model)
