"""From a backbone to the model that training starts with: text policy, lengths, rescale, offset, saved in one folder.

Done once, by one process; all processes and every resume load the folder, so that an automatic k is measured once and a
rescale is applied once (arXiv 2606.18811, Eq. 6).
"""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pyserini_rescale.errors import ConfigError, ModelError
from pyserini_rescale.model.calibrate import calibrate_head
from pyserini_rescale.model.head import (
    find_head,
    load_masked_lm,
    position_limit,
    save_model,
    stored_policy,
    untie_head,
)
from pyserini_rescale.model.policy import KEY, Policy
from pyserini_rescale.model.texts import LIMIT, Texts, pairs_of
from pyserini_rescale.model.tokenizer import apply_text_policy, load_tokenizer
from pyserini_rescale.train.config import TrainConfig
from pyserini_rescale.train.data import Collator


def prepare(config: TrainConfig, triples: Iterable[Mapping[str, str]], folder: Path) -> dict[str, Any]:
    """Write the model that training starts with to ``folder``; return figures about it, for the run's record.

    triples: rows of query, positive, negative; an automatic k or offset is measured on the first ones. Raises
    ConfigError, ModelError or DataError; the folder is complete or absent.
    """
    backbone, text = config.backbone, config.text
    model = load_masked_lm(backbone.name, trust_remote_code=backbone.trust_remote_code)
    tokenizer = load_tokenizer(backbone.name, backbone.trust_remote_code)
    apply_text_policy(tokenizer, lowercase=text.lowercase, prefix_space=text.prefix_space)
    tokenizer.model_max_length = text.document_length  # what other tools cut texts to
    Collator(tokenizer, text.query_length, text.document_length)  # raises for lengths without room for text
    _check_lengths(config, model)
    _check_vocabulary(model, tokenizer)
    if config.compute.gradient_checkpointing and not model.supports_gradient_checkpointing:
        raise ConfigError(f"compute.gradient_checkpointing: {type(model).__name__} does not support it")
    if backbone.inflate is not None:
        inflate(model, backbone.inflate)
    policy = dataclasses.replace(
        stored_policy(model) or Policy(),
        query_length=text.query_length,
        document_length=text.document_length,
        special_tokens=text.special_tokens,
    )
    setattr(model.config, KEY, policy.to_dict())
    norms_before = _row_norms(model)
    found: dict[str, Any] = {}
    rescale = config.rescale
    if rescale.factor is not None or rescale.shift is not None:
        measured = rescale.factor == "auto" or isinstance(rescale.shift, str)
        done = calibrate_head(
            model,
            tokenizer,
            factor=rescale.factor,
            scope=rescale.scope,
            rescale_bias=rescale.bias,
            bias_offset=rescale.shift,
            target_active=rescale.target_active,
            texts=calibration_texts(triples) if measured else None,
        )
        found["hidden_states_moved"] = done.movement
    save_model(model, tokenizer, folder, fresh=False)
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "vocabulary": find_head(model).weight.shape[0],
        "row_norm_before": norms_before,
        "row_norm": _row_norms(model),
        "policy": (stored_policy(model) or Policy()).to_dict(),
        **found,
    }


def calibration_texts(triples: Iterable[Mapping[str, str]]) -> Texts:
    """Return the first ``LIMIT`` triples as texts to calibrate on, as ``head suggest --texts`` takes those of a file."""
    first = itertools.islice(triples, LIMIT)
    records = [{"query": row["query"], "passage": row["positive"], "negative": row["negative"]} for row in first]
    return pairs_of("the training data", records)


def inflate(model: PreTrainedModel, factor: float) -> None:
    """Multiply the decoder by ``factor``, untied beforehand: an artificial large head, for experiments only."""
    untie_head(model)
    with torch.no_grad():
        find_head(model).weight.mul_(factor)


def _check_lengths(config: TrainConfig, model: PreTrainedModel) -> None:
    limit = position_limit(model)
    for key in ("query_length", "document_length"):
        length = getattr(config.text, key)
        if limit is not None and length > limit:
            raise ConfigError(
                f"text.{key} {length} is beyond the {limit} positions of {config.backbone.name}: set it to {limit} at most"
            )


def _check_vocabulary(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    size = find_head(model).weight.shape[0]
    if len(tokenizer) > size:
        raise ModelError(
            f"the tokenizer has {len(tokenizer):,} tokens, the model only {size:,}: they do not belong together"
        )


def _row_norms(model: PreTrainedModel) -> dict[str, float]:
    norms = find_head(model).weight.detach().float().norm(dim=1)
    return {"mean": float(norms.mean()), "max": float(norms.max())}
