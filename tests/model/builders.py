"""Small random models of every backbone, without a network: random biases, the eps of the published checkpoints."""

import os
from pathlib import Path

import pytest
import torch
import transformers
from transformers import AutoModelForMaskedLM

from pyserini_rescale.model.backbones import BACKBONES

SIZE = 103
_BERT = {
    "vocab_size": SIZE,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
_ROBERTA = {**_BERT, "max_position_embeddings": 34, "layer_norm_eps": 1e-5, "type_vocab_size": 1, "pad_token_id": 1}
# model_type -> (name of the configuration class, its values)
CONFIGS: dict[str, tuple[str, dict]] = {
    "bert": ("BertConfig", {**_BERT, "max_position_embeddings": 32, "pad_token_id": 0}),
    "albert": ("AlbertConfig", {**_BERT, "embedding_size": 16, "max_position_embeddings": 32, "pad_token_id": 0}),
    "roberta": ("RobertaConfig", _ROBERTA),
    "xlm-roberta": ("XLMRobertaConfig", _ROBERTA),
    "camembert": ("CamembertConfig", _ROBERTA),
    "distilbert": (
        "DistilBertConfig",
        {"vocab_size": SIZE, "dim": 24, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 32},
    ),
    "modernbert": (
        "ModernBertConfig",
        {
            **_BERT,
            "max_position_embeddings": 32,
            "pad_token_id": 0,
            "local_attention": 8,
            "global_attn_every_n_layers": 2,
        },
    ),
    "gte": ("GteConfig", {**_BERT, "max_position_embeddings": 32, "pad_token_id": 1}),
    # without a row in the table
    "electra": ("ElectraConfig", {**_BERT, "embedding_size": 16, "max_position_embeddings": 32}),
    "mpnet": ("MPNetConfig", {**_BERT, "max_position_embeddings": 34}),
    "deberta-v2": ("DebertaV2Config", {**_BERT, "legacy": True}),
}
FAMILIES = [name for name in BACKBONES if hasattr(transformers, CONFIGS[name][0])]
PROBED = ["electra", "mpnet", "deberta-v2"]


def build(model_type: str, seed: int = 0, **changes):
    """Return a random model in eval mode, with the magnitudes of a trained one.

    Layers keep the variance of their input, embeddings have 0.1 per dimension (row norms of 1.4 to 3.6 at d = 768 are
    0.05 to 0.13), and biases are far from zero, so that a lost one shows.
    """
    name, values = CONFIGS[model_type]
    torch.manual_seed(seed)
    model = AutoModelForMaskedLM.from_config(getattr(transformers, name)(**{**values, **changes})).eval()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, torch.nn.Linear) and module is not model.get_output_embeddings():
                module.weight.normal_(0, module.in_features**-0.5)
            elif isinstance(module, torch.nn.Embedding):
                module.weight.normal_(0, 0.1)
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def texts(model, lengths=(9, 5, 12), seed=1):
    """Return ids and mask (B, L) of random texts of these lengths, padded on the right with the model's own token."""
    generator = torch.Generator().manual_seed(seed)
    filler = model.config.pad_token_id or 0
    mask = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]
    ids = torch.randint(5, model.config.vocab_size, mask.shape, generator=generator)
    return ids.masked_fill(~mask, filler), mask.long()


def hidden_states(model, ids, mask):
    """Return the last layer's hidden states of real tokens (T, d)."""
    with torch.inference_mode():
        states = model(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states[-1]
    return states[mask.bool()]


def logits(model, ids, mask):
    """Return the logits of real tokens (T, V)."""
    with torch.inference_mode():
        return model(input_ids=ids, attention_mask=mask).logits[mask.bool()]


def shared_folder(variable: str, name: str) -> Path:
    """Return the folder that ``variable`` names, or ../shared/NAME beside the repository; skip the test without it."""
    told = os.environ.get(variable)
    folder = Path(told) if told else Path(__file__).resolve().parents[3] / "shared" / name
    if not folder.is_dir():
        pytest.skip(f"needs real {name}: set {variable} to their folder")
    return folder


WORDS = (
    "the a of wind tunnel heat flow shock wave plate wing drag lift jet layer cone pressure gas retrieval".split()
    + ["sparse"]
)


def make_word_tokenizer(model, words=WORDS, lower=True, specials=True):
    """Return a fast tokenizer: whole words, [CLS] text [SEP] (or [CLS] a [SEP] b [SEP]), the model's padding id."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    names = {"pad": model.config.pad_token_id or 0}
    free = [number for number in range(5) if number != names["pad"]]
    names.update(zip(("unk", "cls", "sep", "mask"), free, strict=True))
    vocabulary = {f"[{name.upper()}]": number for name, number in names.items()}
    vocabulary.update({word: 5 + number for number, word in enumerate(words)})
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    if lower:
        inner.normalizer = normalizers.Lowercase()
    if specials:
        inner.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", names["cls"]), ("[SEP]", names["sep"])],
        )
    tokens = {f"{name}_token": f"[{name.upper()}]" for name in names}
    return PreTrainedTokenizerFast(tokenizer_object=inner, **tokens)
