"""Give the original head back: undo a rescale and an offset, from what config.json says of them.

The result equals the original within the rounding of the numbers: a division by a power of two is undone exactly, any
other within one unit of the last place; an offset within the rounding of the sum. It is the original only if the model
was not trained in between; an untied head shows that, and is refused then; on a tied one nothing does.
"""

import dataclasses

import torch
from transformers import PreTrainedModel

from pyserini_rescale.errors import ModelError
from pyserini_rescale.model.backbones import Backbone
from pyserini_rescale.model.head import balance, find_head, retie, separate_twin, stored_policy
from pyserini_rescale.model.offset import remove_offset
from pyserini_rescale.model.policy import KEY, Policy

_RETIE_TOLERANCE = 1e-5  # relative to the largest entry; two roundings of float32 are below 2e-7


def undo_head(model: PreTrainedModel) -> Policy:
    """Undo offset and rescale of ``model``, in place; return the policy that was undone.

    Our key leaves its config, unless it says something else too (lengths, quantiser). Raises ModelError if there is
    nothing to undo, if per-term offsets are lost, or if the head was trained since; nothing is changed then.
    """
    policy = stored_policy(model)
    if policy is None or (policy.scope is None and policy.offset_rule is None):
        raise ModelError("by its config.json, this model was neither rescaled nor given an offset: nothing to undo")
    head = find_head(model)
    if policy.scope == "untied" and policy.tied_before and not head.tied:
        word = head.word.get_parameter("weight")
        difference = (head.weight * policy.k - word).abs().max()
        if difference > _RETIE_TOLERANCE * word.abs().max():
            raise ModelError("the head times k is not the input embedding: it was trained since, and cannot be undone")
    row = head.backbone
    if policy.scope == "balanced" and row is None:
        raise ModelError(
            f"scope balanced cannot be undone: model_type {model.config.model_type} has no row in the table of backbones"
        )
    if policy.rescale_bias and head.bias is None:
        raise ModelError("by its config.json, the bias was rescaled, and the head has none")
    remove_offset(model)
    if policy.scope is not None:
        _undo_rescale(model, policy, row)
    rest = dataclasses.replace(
        stored_policy(model) or Policy(), k=1.0, scope=None, rescale_bias=False, tied_before=None
    )
    if rest == Policy():
        delattr(model.config, KEY)
    else:
        setattr(model.config, KEY, rest.to_dict())
    return policy


def _undo_rescale(model: PreTrainedModel, policy: Policy, row: Backbone | None) -> None:
    head = find_head(model)
    with torch.no_grad():
        if policy.rescale_bias and head.bias is not None:
            head.bias.mul_(policy.k)
        if policy.scope == "untied" and policy.tied_before:
            retie(model, head)
        else:
            head.weight.mul_(policy.k)
        if policy.scope == "balanced" and row is not None:
            balance(model, row, 1.0 / policy.k)
    separate_twin(model)
