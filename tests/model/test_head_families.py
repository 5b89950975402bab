"""Rescale, offset, save and undo on every backbone, with published eps and norms, and on what has no row."""

import json
import math

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoModelForMaskedLM

from pyserini_rescale.errors import ConfigError, ModelError
from pyserini_rescale.model import head
from pyserini_rescale.model.backbones import BACKBONES
from pyserini_rescale.model.head import find_head, load_masked_lm, rescale_head, save_model, stored_policy
from pyserini_rescale.model.offset import Offset, apply_offset
from pyserini_rescale.model.policy import KEY, Policy
from pyserini_rescale.model.undo import undo_head
from tests.model.builders import FAMILIES, PROBED, build
from tests.model.head_models import PUBLISHED, bias_of, overscaling, published, relative, run

FACTORS = (1, 2, 16)


@pytest.fixture
def same_process(monkeypatch):
    """Compare the reload here, by plain transformers: a fresh process takes seconds, and has its tests elsewhere."""

    monkeypatch.setattr(head, "_reload_elsewhere", head._reload_here)


def is_tied(model) -> bool:
    return model.get_output_embeddings().weight is model.get_input_embeddings().weight


def test_published_models_cover_the_table():
    covered = {overscaling.PUBLISHED[name].model_type for name in PUBLISHED}
    # XLM-R and CamemBERT are RoBERTa's code; they are covered by the small models below
    assert covered == {name for name in FAMILIES if name not in ("xlm-roberta", "camembert")}


@pytest.mark.parametrize("name", PUBLISHED)
def test_models_are_as_published(name):
    model, facts = published(name), overscaling.PUBLISHED[name]
    weight = model.get_output_embeddings().weight
    assert is_tied(model) and math.isclose(float(weight.detach().norm(dim=1).mean()), facts.row_norm, rel_tol=1e-5)
    key = BACKBONES[facts.model_type].eps_key
    assert key is None or getattr(model.config, key) == facts.eps
    assert bias_of(model).std() > 0.05


@pytest.mark.parametrize("rescale_bias", [False, True])
@pytest.mark.parametrize("scope", ["balanced", "untied"])
@pytest.mark.parametrize("k", FACTORS)
@pytest.mark.parametrize("name", PUBLISHED)
def test_logits_are_divided_and_hidden_states_stay(name, k, scope, rescale_bias):
    model = published(name)
    hidden, logits = run(model)
    bias = bias_of(model)
    rescale_head(model, k, scope=scope, rescale_bias=rescale_bias)
    new_hidden, new_logits = run(model)
    assert relative(hidden, new_hidden) < (1e-4 if scope == "balanced" else 1e-6)
    expected = logits / k if rescale_bias else (logits - bias) / k + bias
    # The eps of the head's own LayerNorm is the same key. These random heads feed it a variance of 0.016, where a
    # change of an eps of 1e-5 shows: eps / (2 variance) = 3e-4.
    coarse = scope == "balanced" and k > 1 and overscaling.PUBLISHED[name].eps > 1e-6
    assert relative(expected - bias, new_logits - bias) < (1e-3 if coarse else 1e-5)
    assert is_tied(model) == (scope == "balanced")
    assert model.config.tie_word_embeddings == (scope == "balanced")
    assert stored_policy(model) == Policy(k=k, scope=scope, rescale_bias=rescale_bias, tied_before=True)


@pytest.mark.parametrize("k", FACTORS)
@pytest.mark.parametrize("name", PUBLISHED)
def test_shared_divides_the_tied_matrix_and_nothing_else(name, k):
    model = published(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    word = next(key for key, value in model.named_parameters() if value is model.get_input_embeddings().weight)
    config = model.config.to_dict()
    rescale_head(model, k, scope="shared")
    after = model.state_dict()
    assert is_tied(model)
    for key, value in before.items():
        divided = value.data_ptr() == before[word].data_ptr() or torch.equal(value, before[word])
        assert torch.equal(after[key], value / k if divided else value), key
    assert {key: value for key, value in model.config.to_dict().items() if key != KEY} == config


@pytest.mark.parametrize("name", PUBLISHED)
def test_eps_matters_only_where_it_is_large(name):
    """The finding behind scope balanced: without its eps, RoBERTa and ModernBERT move at k = 16; with it, none does."""
    model = published(name)
    hidden, _ = run(model)
    moved = {
        variant: relative(hidden, run(overscaling.rescaled(model, 16, variant))[0]) for variant in overscaling.VARIANTS
    }
    facts = overscaling.PUBLISHED[name]
    sums = bool(BACKBONES[facts.model_type].summed)
    assert moved["balanced"] < 1e-4
    assert (moved["balanced, eps left alone"] > 1e-3) == (facts.eps > 1e-6)
    assert (moved["shared"] > 0.3) == sums
    assert sums or math.isclose(moved["shared"], moved["balanced, eps left alone"], rel_tol=1e-3)


@pytest.mark.parametrize("scope", ["balanced", "untied", "shared"])
@pytest.mark.parametrize("model_type", FAMILIES)
def test_small_models_of_every_row(model_type, scope):
    """Rows that share their code with a published model, and other widths: k = 3 is no power of two."""
    model = build(model_type)
    hidden, logits = run(model)
    bias = bias_of(model)
    rescale_head(model, 3.0, scope=scope)
    new_hidden, new_logits = run(model)
    if scope != "shared":
        assert relative(hidden, new_hidden) < 1e-4
        assert torch.allclose(new_logits, (logits - bias) / 3 + bias, rtol=1e-3, atol=1e-4)
    undo_head(model)
    again, logits_again = run(model)
    assert relative(hidden, again) < 1e-6 and relative(logits, logits_again) < 1e-6
    assert is_tied(model) and model.config.tie_word_embeddings


@pytest.mark.parametrize("model_type", FAMILIES)
def test_saved_untied_with_offset_reloaded_and_undone(model_type, tmp_path, same_process):
    """The hardest to save: untied, bias divided, per-term offset. Plain transformers reads it, undo gives all back."""
    model = build(model_type)
    _, logits = run(model)
    config = model.config.to_dict()
    rescale_head(model, 16, scope="untied", rescale_bias=True)
    terms = torch.randn(model.config.vocab_size, generator=torch.Generator().manual_seed(3))
    apply_offset(model, Offset(1.25, "per-term", terms, 0.015))
    _, changed = run(model)
    assert torch.allclose(changed, logits / 16 - terms - 1.25, rtol=1e-4, atol=1e-4)

    save_model(model, None, tmp_path / "saved")
    assert sorted(p.name for p in (tmp_path / "saved").iterdir()) == [
        "config.json",
        "model.safetensors",
        "term_offsets.safetensors",
    ]
    plain = AutoModelForMaskedLM.from_pretrained(tmp_path / "saved").eval()
    assert relative(changed, run(plain)[1]) < 1e-6
    policy = json.loads((tmp_path / "saved" / "config.json").read_text())[KEY]
    assert policy["k"] == 16 and policy["bias_offset"] == 1.25 and policy["offset_rule"] == "per-term"

    loaded = load_masked_lm(str(tmp_path / "saved"))
    assert relative(changed, run(loaded)[1]) < 1e-6
    with pytest.raises(ModelError, match="rescaled before"):
        rescale_head(loaded, 2)
    with pytest.raises(ModelError, match="offset already"):
        apply_offset(loaded, Offset(1.0, "constant"))
    undo_head(loaded)
    assert relative(logits, run(loaded)[1]) < 5e-6 and is_tied(loaded)  # k times the rounding of the offset
    assert not hasattr(loaded.config, KEY)
    ignored = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version")
    assert {k: v for k, v in loaded.config.to_dict().items() if k not in ignored} == {
        k: v for k, v in config.items() if k not in ignored
    }
    assert all(parameter.requires_grad for parameter in loaded.parameters())

    save_model(loaded, None, tmp_path / "undone")
    assert sorted(p.name for p in (tmp_path / "undone").iterdir()) == ["config.json", "model.safetensors"]
    assert relative(logits, run(AutoModelForMaskedLM.from_pretrained(tmp_path / "undone").eval())[1]) < 5e-6


@pytest.mark.parametrize("name", PUBLISHED)
def test_saved_balanced_reloaded_and_undone(name, tmp_path, same_process):
    """k = 16 and 3: the eps of the config survives, tying survives, hidden states are the original's after a reload."""
    model = published(name)
    hidden, logits = run(model)
    rescale_head(model, 3, scope="balanced")
    apply_offset(model, Offset(-0.5, "constant"))
    save_model(model, None, tmp_path / "saved")
    loaded = load_masked_lm(str(tmp_path / "saved"))
    assert is_tied(loaded) and relative(hidden, run(loaded)[0]) < 1e-4
    undo_head(loaded)
    assert relative(hidden, run(loaded)[0]) < 1e-6 and relative(logits, run(loaded)[1]) < 1e-6
    key = BACKBONES[model.config.model_type].eps_key
    assert key is None or math.isclose(getattr(loaded.config, key), overscaling.PUBLISHED[name].eps, rel_tol=1e-12)


@pytest.mark.parametrize("model_type", PROBED)
def test_models_without_a_row_shared_untied_offset_and_undo(model_type, tmp_path, same_process):
    original = build(model_type)
    _, logits = run(original)
    bias = bias_of(original)
    with pytest.raises(ModelError, match="balanced"):
        rescale_head(original, 2, scope="balanced")
    assert relative(logits, run(original)[1]) == 0 and not hasattr(original.config, KEY)

    model = build(model_type)
    rescale_head(model, 4, scope="shared")
    assert is_tied(model)
    undo_head(model)
    assert relative(logits, run(model)[1]) < 1e-6

    model = build(model_type)
    rescale_head(model, 4, scope="untied", rescale_bias=True)
    apply_offset(model, Offset(0.75, "constant"))
    expected = logits / 4 - 0.75
    assert torch.allclose(run(model)[1], expected, rtol=1e-4, atol=1e-4)
    save_model(model, None, tmp_path / "saved")
    loaded = load_masked_lm(str(tmp_path / "saved"))
    assert torch.allclose(run(loaded)[1], expected, rtol=1e-4, atol=1e-4)
    undo_head(loaded)
    assert relative(logits, run(loaded)[1]) < 1e-6 and is_tied(loaded)
    assert torch.allclose(bias_of(loaded), bias, atol=1e-6)


@pytest.mark.parametrize("model_type", PROBED)
def test_transformers_4_reads_an_offset_without_a_row_too(model_type, tmp_path, other_transformers):
    """MPNet and DeBERTa-v2 keep a second copy of the bias, which 4.x reads and 5.x does not."""
    model = build(model_type)
    rescale_head(model, 4, scope="untied")
    apply_offset(model, Offset(0.75, "constant"))
    model.save_pretrained(tmp_path / "model")
    request, logits = head._reference(model, None)
    other_transformers(tmp_path / "model", request, tmp_path / "answer.npy")
    assert abs(np.load(tmp_path / "answer.npy") - logits).max() < 1e-4


REMOTE = """
import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import MaskedLMOutput


class OwnConfig(PretrainedConfig):
    model_type = "own-encoder"

    def __init__(self, vocab_size=61, width=12, factor=1.0, pad_token_id=0, **more):
        self.vocab_size, self.width, self.factor = vocab_size, width, factor
        super().__init__(pad_token_id=pad_token_id, **more)


class OwnForMaskedLM(PreTrainedModel):
    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        self.words = nn.Embedding(config.vocab_size, config.width)
        self.mix = nn.Linear(config.width, config.width)
        self.out = nn.Linear(config.width, config.vocab_size)
        self.post_init()

    def _init_weights(self, module):
        pass

    def get_input_embeddings(self):
        return self.words

    def get_output_embeddings(self):
        return self.out

    def forward(self, input_ids=None, attention_mask=None, **more):
        x = self.words(input_ids) * attention_mask.unsqueeze(-1)
        hidden = torch.tanh(self.mix(x) + x.mean(1, keepdim=True))
        logits = self.out(hidden)
        return MaskedLMOutput(logits=logits * self.config.factor, hidden_states=(hidden,))
"""


def remote_model(folder, factor=1.0):
    """Write a model whose code comes with it, untied head, as published remote-code models are."""
    from safetensors.torch import save_file

    folder.mkdir()
    (folder / "own_encoder.py").write_text(REMOTE)
    generator = torch.Generator().manual_seed(0)
    shapes = {
        "words.weight": (61, 12),
        "mix.weight": (12, 12),
        "mix.bias": (12,),
        "out.weight": (61, 12),
        "out.bias": (61,),
    }
    save_file(
        {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    config = {
        "model_type": "own-encoder", "vocab_size": 61, "width": 12, "factor": factor, "tie_word_embeddings": False,
        "architectures": ["OwnForMaskedLM"],
        "auto_map": {"AutoConfig": "own_encoder.OwnConfig", "AutoModelForMaskedLM": "own_encoder.OwnForMaskedLM"},
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.mark.slow
def test_remote_code_only_when_asked_for_then_as_any_other(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    name = remote_model(tmp_path / "own")
    with pytest.raises(ModelError, match="trust_remote_code"):
        load_masked_lm(name)
    model = load_masked_lm(name, trust_remote_code=True)
    _, logits = run(model)
    bias = bias_of(model)
    with pytest.raises(ModelError, match="untied"):
        rescale_head(model, 2, scope="shared")
    rescale_head(model, 5, scope="untied")
    assert torch.allclose(run(model)[1], (logits - bias) / 5 + bias, atol=1e-5)
    save_model(model, None, tmp_path / "saved")
    loaded = load_masked_lm(str(tmp_path / "saved"), trust_remote_code=True)
    undo_head(loaded)
    assert torch.allclose(run(loaded)[1], logits, atol=1e-5)
    assert not is_tied(loaded) and loaded.config.tie_word_embeddings is False


def test_remote_code_that_changes_its_logits_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    with pytest.raises(ModelError, match="rescaling that layer is not enough"):
        load_masked_lm(remote_model(tmp_path / "own", factor=0.5), trust_remote_code=True)


def saved(model, folder) -> str:
    model.save_pretrained(folder)
    return str(folder)


SMALL = {"vocab_size": 61, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


def mobilebert():
    config = transformers.MobileBertConfig(
        **{
            **SMALL,
            "embedding_size": 8,
            "intra_bottleneck_size": 16,
            "true_hidden_size": 16,
            "num_feedforward_networks": 1,
        }
    )
    return transformers.MobileBertForMaskedLM(config)


def test_heads_that_are_no_projection_are_refused_with_the_reason(tmp_path):
    with pytest.raises(ModelError, match="calls its output layer 0 times|shape"):
        load_masked_lm(saved(mobilebert(), tmp_path / "mobilebert"))
    deberta = transformers.DebertaV2ForMaskedLM(transformers.DebertaV2Config(**SMALL, legacy=False))
    with pytest.raises(
        ModelError, match="shape|cannot be run"
    ):  # 4.57 gives the layer the word embedding's shape, and fails
        load_masked_lm(saved(deberta, tmp_path / "deberta"))
    gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=61, n_embd=16, n_layer=1, n_head=2))
    with pytest.raises(ModelError, match="no masked-language-model head"):
        load_masked_lm(saved(gpt2, tmp_path / "gpt2"))


@pytest.mark.parametrize("model_type", FAMILIES)
def test_newly_initialised_heads_are_refused(model_type, tmp_path):
    """A bare encoder: transformers would make up the head."""
    with pytest.raises(ModelError, match="random numbers"):
        load_masked_lm(saved(build(model_type).base_model, tmp_path / "bare"))


@pytest.mark.parametrize("k", [0, -1, -0.0, float("nan"), float("inf"), True, "2", None])
def test_factors_that_mean_nothing_change_nothing(k):
    model = build("bert")
    _, logits = run(model)
    with pytest.raises(ConfigError, match="factor|rescale"):
        rescale_head(model, k)
    assert torch.equal(run(model)[1], logits) and not hasattr(model.config, KEY)


def test_undo_refuses_what_was_never_done_or_trained_since():
    with pytest.raises(ModelError, match="nothing to undo"):
        undo_head(build("bert"))
    model = build("bert")
    rescale_head(model, 4, scope="untied")
    with torch.no_grad():
        find_head(model).weight[3, 0] += 0.01
    before = run(model)[1]
    with pytest.raises(ModelError, match="trained since"):
        undo_head(model)
    assert torch.equal(run(model)[1], before) and stored_policy(model).k == 4


def test_undo_keeps_the_rest_of_the_policy():
    model = build("bert")
    setattr(model.config, KEY, Policy(query_length=7).to_dict())
    rescale_head(model, 4)
    undo_head(model)
    assert stored_policy(model) == Policy(query_length=7)


def test_lost_per_term_file_is_named_by_undo_and_harms_nothing_else(tmp_path, same_process):
    model = build("modernbert")
    apply_offset(model, Offset(0.5, "per-term", torch.ones(model.config.vocab_size), 0.1))
    _, logits = run(model)
    save_model(model, None, tmp_path / "saved")
    (tmp_path / "saved" / "term_offsets.safetensors").unlink()
    loaded = load_masked_lm(str(tmp_path / "saved"))
    assert relative(logits, run(loaded)[1]) < 1e-6
    with pytest.raises(ModelError, match="per-term offsets"):
        undo_head(loaded)
    assert relative(logits, run(loaded)[1]) < 1e-6


def test_per_term_file_of_another_model_is_refused(tmp_path, same_process):
    folders = []
    for value in (1.0, 2.0):
        model = build("bert")
        apply_offset(model, Offset(0.5, "per-term", torch.full((model.config.vocab_size,), value), 0.1))
        save_model(model, None, tmp_path / str(value))
        folders.append(tmp_path / str(value))
    (folders[0] / "term_offsets.safetensors").write_bytes((folders[1] / "term_offsets.safetensors").read_bytes())
    with pytest.raises(ModelError, match="checksum"):
        load_masked_lm(str(folders[0]))
