"""The end of a run: a plain Hugging Face folder with float32 weights, our key, and a model card.

Whatever trained it, the folder is what ``AutoModelForMaskedLM.from_pretrained`` reads: safetensors, a tied head once,
the tokenizer with its text policy. Our encoders and sentence-transformers' SparseEncoder take it as it is.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from pyserini_rescale.errors import ModelError
from pyserini_rescale.model.head import load_masked_lm, save_model
from pyserini_rescale.model.policy import Policy
from pyserini_rescale.model.tokenizer import load_tokenizer
from pyserini_rescale.train.config import TrainConfig
from pyserini_rescale.yaml_files import to_yaml

CARD = "README.md"


def export(
    start: Path,
    live: PreTrainedModel,
    weights: Mapping[str, torch.Tensor],
    folder: Path,
    card: str,
    trust_remote_code: bool = False,
) -> None:
    """Write the trained model to ``folder``: the model in ``start`` with ``weights``, float32, by parameter name.

    live: the model as it was trained. Raises ModelError if a weight is missing, or if one, rounded to the live model's
    type, is not the live one.
    """
    model = load_masked_lm(str(start), trust_remote_code=trust_remote_code)
    parameters, trained = dict(model.named_parameters()), dict(live.named_parameters())
    if set(parameters) != set(weights) or set(parameters) != set(trained):
        wrong = sorted(set(parameters) ^ set(weights) or set(parameters) ^ set(trained))
        raise ModelError(f"the trained weights are not those of {start}: {', '.join(wrong[:6])}")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])
            same = parameter.to(trained[name].dtype)
            if not torch.equal(same, trained[name].detach().to(same.device)):
                raise ModelError(f"the float32 weights of {name} are not those that were trained: nothing was exported")
        for name, buffer in dict(live.named_buffers()).items():
            model.get_buffer(name).copy_(buffer.to(model.get_buffer(name).dtype))
    save_model(model, load_tokenizer(str(start), trust_remote_code), folder, {CARD: card})


def model_card(config: TrainConfig, record: Mapping[str, Any]) -> str:
    """Return the model card: what was done, and the figures of this run only."""
    first, last = record["first"], record["last"]
    policy = Policy(**record["start"]["policy"])
    environment = record["environment"]
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
    source = config.data.hub or ", ".join(Path(name).name for name in config.data.files)
    subset = f", subset {config.data.subset}" if config.data.subset else ""
    shift = "" if policy.offset_rule is None else f", logits shifted by {policy.bias_offset:.4g} ({policy.offset_rule})"
    scope = f", scope {policy.scope}" if policy.scope else ""
    if config.rescale.factor is None and config.rescale.shift is None and (policy.scope or policy.offset_rule):
        scope += ", as the backbone had them already"
    note = (
        ""
        if policy.special_tokens
        else "Special tokens are left out of the vectors by pyserini-rescale; other tools keep them.\n"
    )
    rows = [
        ("in-batch contrastive loss", "contrastive", ".4g"),
        ("terms a query", "query_active", ".1f"),
        ("terms a document", "document_active", ".1f"),
        ("largest weight", "largest_weight", ".3g"),
    ]

    def cell(value: float | None, form: str) -> str:
        return "not finite" if value is None else f"{value:{form}}"

    table = "\n".join(f"| {label} | {cell(first[key], form)} | {cell(last[key], form)} |" for label, key, form in rows)
    tags = ["splade", "sparse-encoder", "sparse", "pyserini"]
    front = to_yaml({"base_model": config.backbone.name, "pipeline_tag": "feature-extraction", "tags": tags})
    return f"""---
{front}---

# {config.name}

A SPLADE model made from `{config.backbone.name}` with pyserini-rescale: k = {policy.k:g}{scope}{shift} (arXiv 2606.18811).
Mean row norm of the head {record["start"]["row_norm_before"]["mean"]:.4g} before, {record["start"]["row_norm"]["mean"]:.4g} at the start of training.

Trained on {record["rows"]:,} triples of {source}{subset}: {record["steps"]:,} steps of {record["global_batch"]:,},
{record["candidates"]:,} candidates a query. Queries are cut to {config.text.query_length} tokens, documents to {config.text.document_length}.
{note}
| | first logged step | last (step {last["step"]:,}) |
|---|---|---|
{table}

Figures of this run, measured while training, on its own batches; retrieval was not measured by it.

## Use

    python -m pyserini.encode input ... output ... encoder --encoder THIS_FOLDER --encoder-class splade-rescaled
    python -m pyserini.search.lucene --impact --index INDEX --topics TOPICS --encoder THIS_FOLDER --output run.txt

    from sentence_transformers import SparseEncoder
    SparseEncoder("THIS_FOLDER").encode_document(["a text"])

## Made with

{versions}; {environment["machine"]["processor"]}{"" if environment["commit"] is None else f"; commit {environment['commit']}"}

    python -m pyserini_rescale train --config config.yaml

where config.yaml is:

{_indented(to_yaml(config.model_dump(mode="json")))}
"""


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.rstrip().splitlines())
