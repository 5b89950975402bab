"""The backbones we know: one row per ``model_type``, the one place to touch for a new one.

A row says where the MLM head's projection lives (the ``nn.Linear`` of shape (V, d), W_head in arXiv 2606.18811, Eq. 1)
and what else a rescale has to know. Checked against transformers 4.57 and 5.24. Models without a row go through the
probe in head.py. No torch here: the head can be found in a safetensors file without it.

Letters: V vocabulary, d width of the projection's input.
"""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Backbone:
    """Facts about one ``model_type``; every name is an attribute path in the ``...ForMaskedLM`` model.

    projection
        The layer (V, d) whose output is the logits.
    word
        The input embedding that a tied projection shares its weight with.
    norm
        The first LayerNorm that the word embedding reaches.
    summed
        Embeddings added to the word embedding before ``norm``. None at all means that the word embedding is normalised
        at once: dividing it by k then moves nothing but through the LayerNorm's eps.
    eps_key
        Key of config.json that holds the eps of ``norm`` (and of the model's other LayerNorms); None where the eps is
        fixed in transformers' code.
    bias_twin
        A second parameter that holds the projection's bias. transformers 4.x reads it in any case; 5.x ties it to the
        projection's bias only while ``tie_word_embeddings`` is true, and ignores it otherwise.
    padded_positions
        Whether position numbers start at pad_token_id + 1, as in RoBERTa, so that max_position_embeddings of 514 means
        512 tokens.
    """

    model_type: str
    projection: str
    word: str
    norm: str
    summed: tuple[str, ...] = ()
    eps_key: str | None = "layer_norm_eps"
    bias_twin: str | None = None
    padded_positions: bool = False

    def weight_keys(self) -> tuple[str, ...]:
        """Return the state-dict keys under which W_head is found, best first (a tied head is stored once)."""
        return f"{self.projection}.weight", f"{self.word}.weight"

    def bias_keys(self) -> tuple[str, ...]:
        """Return the state-dict keys under which the projection's bias is found, best first."""
        return tuple(key for key in (f"{self.projection}.bias", self.bias_twin) if key)


def _bert_like(model_type: str, base: str, head: str, **more: Any) -> Backbone:
    """Return a row for a model whose embeddings are BERT's: word + position + token type, then LayerNorm."""
    embeddings = f"{base}.embeddings"
    return Backbone(
        model_type=model_type,
        projection=f"{head}.decoder",
        word=f"{embeddings}.word_embeddings",
        norm=f"{embeddings}.LayerNorm",
        summed=(f"{embeddings}.position_embeddings", f"{embeddings}.token_type_embeddings"),
        bias_twin=f"{head}.bias",
        **more,
    )


_ROWS = (
    _bert_like("bert", "bert", "cls.predictions"),
    _bert_like("albert", "albert", "predictions"),
    _bert_like("roberta", "roberta", "lm_head", padded_positions=True),
    _bert_like("xlm-roberta", "roberta", "lm_head", padded_positions=True),
    _bert_like("camembert", "roberta", "lm_head", padded_positions=True),
    Backbone(
        model_type="distilbert",
        projection="vocab_projector",
        word="distilbert.embeddings.word_embeddings",
        norm="distilbert.embeddings.LayerNorm",
        summed=("distilbert.embeddings.position_embeddings",),
        eps_key=None,  # 1e-12 in the code: too small to matter at any k of use
    ),
    Backbone(  # ModernBERT, Ettin; positions are rotary
        model_type="modernbert",
        projection="decoder",
        word="model.embeddings.tok_embeddings",
        norm="model.embeddings.norm",
        eps_key="norm_eps",
    ),
    Backbone(  # transformers' own class (5.x); positions are rotary, token types are absent where type_vocab_size = 0
        model_type="gte",
        projection="lm_head.decoder",
        word="gte.embeddings.word_embeddings",
        norm="gte.embeddings.LayerNorm",
        summed=("gte.embeddings.token_type_embeddings",),
    ),
)

BACKBONES: dict[str, Backbone] = {row.model_type: row for row in _ROWS}


def backbone_for(model_type: str) -> Backbone | None:
    """Return the row of ``model_type``, or None where there is none (then the probe decides)."""
    return BACKBONES.get(model_type)
