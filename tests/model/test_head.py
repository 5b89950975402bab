"""Loading, finding, rescaling and saving the head, on small random models of every backbone."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoModelForMaskedLM, BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

from pyserini_rescale.errors import ConfigError, ModelError
from pyserini_rescale.model import head as head_module
from pyserini_rescale.model.backbones import BACKBONES
from pyserini_rescale.model.head import find_head, load_masked_lm, rescale_head, save_model, stored_policy
from pyserini_rescale.model.policy import KEY, Policy, read_policy
from tests.model.builders import FAMILIES, PROBED, build, hidden_states, logits, texts


def saved_keys(folder) -> set[str]:
    with safe_open(folder / "model.safetensors", "pt") as file:
        return set(file.keys())


def rewrite(folder, change) -> None:
    """Apply ``change`` to the dictionary of tensors in a saved model."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def move(before: torch.Tensor, after: torch.Tensor) -> float:
    """Relative movement."""
    return ((after - before).norm() / before.norm()).item()


@pytest.fixture
def same_process(monkeypatch):
    """Compare the reload in this process, still by plain transformers: a fresh one takes seconds."""

    monkeypatch.setattr(head_module, "_reload_elsewhere", head_module._reload_here)


# ---- Loading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model_type", [*FAMILIES, *PROBED])
def test_load_gives_the_saved_model_in_float32_and_eval_mode(model_type, tmp_path):
    model = build(model_type)
    model.save_pretrained(tmp_path)
    loaded = load_masked_lm(f"splade-rescaled:{tmp_path}")
    ids, mask = texts(model)
    assert not loaded.training and loaded.dtype == torch.float32
    torch.testing.assert_close(logits(loaded, ids, mask), logits(model, ids, mask))
    loaded.half().save_pretrained(tmp_path / "half")
    assert load_masked_lm(str(tmp_path / "half")).dtype == torch.float32


def test_names_that_lead_nowhere(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "config.json").write_text('{"model_type": "bert", "vocab_size": "many"}')
    (tmp_path / "unknown").mkdir()
    (tmp_path / "unknown" / "config.json").write_text('{"model_type": "nobody-knows"}')
    (tmp_path / "weightless").mkdir()
    BertConfig().save_pretrained(tmp_path / "weightless")
    for name, words in {
        str(tmp_path / "absent"): "no model folder",
        "./absent": "no model folder",
        "": "empty",
        "nobody/nothing-of-this-name": "neither a folder nor a model",
        str(tmp_path / "empty"): "no config.json",
        str(tmp_path / "file"): "is a file",
        str(tmp_path / "broken"): "config.json of",
        str(tmp_path / "odd"): "vocab_size",
        str(tmp_path / "unknown"): "nobody-knows",
        str(tmp_path / "weightless"): "weights of",
    }.items():
        with pytest.raises(ModelError, match=words) as caught:
            load_masked_lm(name)
        assert "\n" not in str(caught.value)


def test_damaged_weights(tmp_path):
    build("bert").save_pretrained(tmp_path)
    whole = (tmp_path / "model.safetensors").read_bytes()
    for bad in (b"", b"no tensors here", whole[: len(whole) // 2]):
        (tmp_path / "model.safetensors").write_bytes(bad)
        with pytest.raises(ModelError, match="cannot be loaded"):
            load_masked_lm(str(tmp_path))


def test_models_without_a_masked_language_model_head(tmp_path):
    config = GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=1, n_head=2)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "gpt2")
    with pytest.raises(ModelError, match="gpt2 model, for which transformers has no masked-language-model head"):
        load_masked_lm(str(tmp_path / "gpt2"))
    BertModel(build("bert").config).save_pretrained(tmp_path / "base")
    with pytest.raises(
        ModelError, match=r"lacks weights .* random numbers: cls\.predictions\.bias, cls\.predictions"
    ) as caught:
        load_masked_lm(str(tmp_path / "base"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_any_missing_weight_is_named(model_type, tmp_path):
    model = build(model_type)
    row = BACKBONES[model_type]
    model.save_pretrained(tmp_path / "model")
    for keys in (row.bias_keys(), row.weight_keys(), (f"{row.norm}.weight",)):
        shutil.copytree(tmp_path / "model", tmp_path / "part", dirs_exist_ok=True)
        rewrite(tmp_path / "part", lambda tensors, keys=keys: [tensors.pop(key, None) for key in keys])
        with pytest.raises(ModelError, match="lacks weights") as caught:
            load_masked_lm(str(tmp_path / "part"))
        assert any(key in str(caught.value) for key in keys)


def test_weights_of_another_shape(tmp_path):
    build("bert").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": 104}))
    with pytest.raises(
        ModelError, match=r"do not fit its config.json: .*word_embeddings.weight is \(103, 24\), not \(104, 24\)"
    ):
        load_masked_lm(str(tmp_path))


@pytest.mark.parametrize("model_type", ["bert", "albert", "roberta"])
@pytest.mark.parametrize("dropped", ["own", "twin"])
def test_an_untied_head_keeps_its_bias_under_either_name(model_type, dropped, tmp_path):
    """transformers 4.x writes only the twin, and 5.x then reads zeros; the head is the same by either name."""
    model = build(model_type)
    head = head_module.find_head(model)
    head_module._untie(model, head)
    ids, mask = texts(model)
    want = logits(model, ids, mask)
    model.save_pretrained(tmp_path)
    own, twin = BACKBONES[model_type].bias_keys()
    assert {own, twin} <= saved_keys(tmp_path)
    rewrite(tmp_path, lambda tensors: tensors.pop(own if dropped == "own" else twin))
    loaded = load_masked_lm(str(tmp_path))
    torch.testing.assert_close(logits(loaded, ids, mask), want)
    assert torch.equal(loaded.get_parameter(twin), loaded.get_parameter(own))
    assert loaded.get_parameter(own).requires_grad and not loaded.get_parameter(twin).requires_grad


# ---- Finding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model_type", PROBED)
@pytest.mark.parametrize("training", [True, False])
def test_the_probe_accepts_plain_projections(model_type, training):
    model = build(model_type).train(training)
    head = find_head(model)
    assert head.backbone is None and head.tied and head.projection is model.get_output_embeddings()
    assert model.training == training and not head.projection._forward_pre_hooks


def _mobilebert():
    from transformers import MobileBertConfig, MobileBertForMaskedLM

    config = MobileBertConfig(
        vocab_size=50,
        hidden_size=16,
        embedding_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        intra_bottleneck_size=8,
    )
    return MobileBertForMaskedLM(config)


def _scaled(factor=0.5):
    """A model whose logits are its output layer's, times something."""
    model = build("electra")
    inner = model.forward

    def forward(input_ids=None, attention_mask=None):
        output = inner(input_ids=input_ids, attention_mask=attention_mask)
        output.logits = output.logits * factor
        return output

    model.forward = forward
    return model


def _called_twice():
    model = build("electra")
    inner = model.forward

    def forward(input_ids=None, attention_mask=None):
        inner(input_ids=input_ids, attention_mask=attention_mask)
        return inner(input_ids=input_ids, attention_mask=attention_mask)

    model.forward = forward
    return model


def _maskless():
    model = build("electra")
    model.forward = lambda input_ids: None
    return model


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_mobilebert, "MobileBertForMaskedLM calls its output layer 0 times|is not the projection to the vocabulary"),
        (lambda: build("deberta-v2", legacy=False), "not the projection to the vocabulary"),
        (_scaled, r"are not its output layer's x W\^T \+ b"),
        (_called_twice, "calls its output layer 2 times"),
        (_maskless, "takes no attention mask"),
        (lambda: BertModel(build("bert").config), "no output embeddings|no MLM head"),
    ],
    ids=["mobilebert", "deberta-v2 legacy=False", "scaled logits", "called twice", "no mask", "no head"],
)
def test_the_probe_refuses_with_the_reason(make, words):
    with pytest.raises(ModelError, match=words):
        find_head(make())


def test_a_wrapped_projection_is_refused():
    class Wrapped(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner
            self.weight = inner.weight

    model = build("bert")
    model.cls.predictions.decoder = Wrapped(model.cls.predictions.decoder)
    with pytest.raises(ModelError, match="Wrapped, not a plain nn.Linear"):
        find_head(model)


# ---- Rescaling -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rescale_bias", [False, True])
@pytest.mark.parametrize("k", [1, 2, 16, 0.5])
@pytest.mark.parametrize("scope", ["balanced", "untied"])
@pytest.mark.parametrize("model_type", FAMILIES)
def test_logits_are_divided_and_hidden_states_stay(model_type, scope, k, rescale_bias):
    before, after = build(model_type), build(model_type)
    policy = rescale_head(after, k, scope=scope, rescale_bias=rescale_bias)
    ids, mask = texts(before)
    old, new = logits(before, ids, mask).double(), logits(after, ids, mask).double()
    bias = find_head(before).bias.detach().double()
    want = old / k if rescale_bias else (old - bias) / k + bias
    assert move(hidden_states(before, ids, mask), hidden_states(after, ids, mask)) < 1e-4
    assert move(want, new) < 1e-4
    assert find_head(after).tied == (scope != "untied")
    assert (
        policy == stored_policy(after) == Policy(k=float(k), scope=scope, rescale_bias=rescale_bias, tied_before=True)
    )


@pytest.mark.parametrize("model_type", [*FAMILIES, *PROBED])
def test_shared_divides_the_tied_matrix_and_nothing_else(model_type):
    before, after = build(model_type), build(model_type)
    rescale_head(after, 4)
    head = find_head(after)
    assert head.tied
    for (name, old), (other, new) in zip(before.named_parameters(), after.named_parameters(), strict=True):
        assert name == other
        torch.testing.assert_close(new, old / 4 if new is head.weight else old, rtol=0, atol=0)


def test_shared_moves_what_balanced_leaves():
    """Else the test of balanced shows nothing; and without the eps balanced would move at published eps and norms."""
    ids, mask = texts(build("roberta"))
    still = hidden_states(build("roberta"), ids, mask)
    shared, balanced = build("roberta"), build("roberta")
    rescale_head(shared, 16)
    rescale_head(balanced, 16, scope="balanced")
    assert move(still, hidden_states(shared, ids, mask)) > 0.1
    assert move(still, hidden_states(balanced, ids, mask)) < 1e-4
    for module in balanced.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = 1e-5
    assert move(still, hidden_states(balanced, ids, mask)) > 1e-3


@pytest.mark.parametrize("model_type", PROBED)
def test_a_model_without_a_row_can_be_untied_but_not_balanced(model_type):
    before, after = build(model_type), build(model_type)
    with pytest.raises(ModelError, match="no row in the table"):
        rescale_head(after, 2, scope="balanced")
    rescale_head(after, 2, scope="untied", rescale_bias=True)
    ids, mask = texts(before)
    torch.testing.assert_close(logits(after, ids, mask), logits(before, ids, mask) / 2, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("k", [0, -1, float("nan"), float("inf"), True, "2", None])
def test_factors_that_mean_nothing(k):
    model = build("bert")
    with pytest.raises(ConfigError, match="rescale factor"):
        rescale_head(model, k)
    assert stored_policy(model) is None


@pytest.mark.parametrize("k", [np.float32(2), np.float64(2), np.int64(2), np.float16(2)])
def test_factors_of_numpy_are_numbers(k):
    model = build("bert")
    policy = rescale_head(model, k)
    assert policy.k == 2 and type(policy.k) is float and json.dumps(policy.to_dict())


@pytest.mark.parametrize("tokenizer", ["bert-base-uncased", object(), 5, BertConfig()])
def test_what_is_no_tokenizer_is_refused(tokenizer, tmp_path):
    with pytest.raises(ConfigError, match="the tokenizer is"):
        save_model(build("bert"), tokenizer, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_done_is_refused_and_nothing_is_changed():
    model = build("bert")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ConfigError, match="scope 'all' is unknown"):
        rescale_head(model, 2, scope="all")
    biasless = build("modernbert", decoder_bias=False)
    with pytest.raises(ModelError, match="no bias"):
        rescale_head(biasless, 2, rescale_bias=True)
    untied = build("bert")
    rescale_head(untied, 1, scope="untied")
    delattr(untied.config, KEY)
    for scope in ("shared", "balanced"):
        with pytest.raises(ModelError, match="untied head: use untied"):
            rescale_head(untied, 2, scope=scope)
    rescale_head(model, 2)
    after = {name: value.clone() for name, value in model.state_dict().items()}
    for scope in ("shared", "balanced", "untied"):
        with pytest.raises(ModelError, match=r"rescaled before \(k = 2, scope shared\)"):
            rescale_head(model, 2, scope=scope)
    for name, value in model.state_dict().items():
        assert torch.equal(value, after[name])
        assert not torch.equal(value, before[name]) or "word_embeddings" not in name


def test_a_policy_without_a_rescale_is_kept():
    model = build("bert")
    setattr(model.config, KEY, Policy(query_length=32, special_tokens=False).to_dict())
    assert rescale_head(model, 2) == Policy(
        k=2.0, scope="shared", tied_before=True, query_length=32, special_tokens=False
    )


# ---- Saving ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["shared", "balanced", "untied"])
@pytest.mark.parametrize("model_type", FAMILIES)
def test_save_and_load_keep_logits_tie_policy_and_store_each_tensor_once(model_type, scope, tmp_path, same_process):
    model = build(model_type)
    rescale_head(model, 4, scope=scope)
    ids, mask = texts(model)
    want = logits(model, ids, mask)
    folder = tmp_path / "new" / "model"
    save_model(model, None, folder)
    row = BACKBONES[model_type]
    weights, biases = set(row.weight_keys()) & saved_keys(folder), set(row.bias_keys()) & saved_keys(folder)
    config = json.loads((folder / "config.json").read_text())
    assert config["tie_word_embeddings"] == (scope != "untied")
    assert len(weights) == (2 if scope == "untied" else 1)
    assert len(biases) == (len(row.bias_keys()) if scope == "untied" else 1)
    assert read_policy(str(folder)) == Policy(k=4.0, scope=scope, tied_before=True)
    for loaded in (load_masked_lm(str(folder)), AutoModelForMaskedLM.from_pretrained(folder).eval()):
        torch.testing.assert_close(logits(loaded, ids, mask), want, rtol=1e-5, atol=1e-5)
    loaded = load_masked_lm(str(folder))
    assert find_head(loaded).tied == (scope != "untied")
    with pytest.raises(ModelError, match="rescaled before"):
        rescale_head(loaded, 4, scope=scope)
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


@pytest.mark.parametrize("model_type", ["bert", "roberta", "albert", "modernbert", "distilbert"])
def test_a_plain_save_after_an_untied_rescale_is_right_too(model_type, tmp_path):
    """What a trainer's checkpoints do."""
    model = build(model_type)
    rescale_head(model, 4, scope="untied")
    with torch.no_grad():  # a step of training
        find_head(model).bias.add_(1)
        find_head(model).weight.mul_(1.5)
    ids, mask = texts(model)
    model.save_pretrained(tmp_path)
    for loaded in (load_masked_lm(str(tmp_path)), AutoModelForMaskedLM.from_pretrained(tmp_path).eval()):
        torch.testing.assert_close(logits(loaded, ids, mask), logits(model, ids, mask))
    model.tie_weights()
    assert not find_head(model).tied


def test_both_names_of_an_untied_bias_hold_what_was_trained(tmp_path, same_process):
    model = build("bert")
    rescale_head(model, 4, scope="untied")
    with torch.no_grad():
        find_head(model).bias.add_(1)
    save_model(model, None, tmp_path / "model")
    tensors = load_file(tmp_path / "model" / "model.safetensors")
    own, twin = BACKBONES["bert"].bias_keys()
    assert torch.equal(tensors[own], find_head(model).bias) and torch.equal(tensors[twin], tensors[own])


def test_a_fresh_process_confirms_the_model_and_its_tokenizer(tmp_path, word_tokenizer):
    model = build("roberta")
    rescale_head(model, 8, scope="untied")
    save_model(model.train(), word_tokenizer(model), tmp_path / "model")
    assert model.training
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {
        path.name for path in (tmp_path / "model").iterdir()
    }
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_model_that_would_load_differently_is_not_kept(tmp_path, monkeypatch):
    """transformers 4.x's way (and 5.x's, with one bias for two names): the reload finds it, nothing is left behind."""
    model = build("bert")
    rescale_head(model, 4, scope="untied")
    save_pretrained = type(model).save_pretrained

    def forget_the_bias(self, folder, **named):
        save_pretrained(self, folder, **named)
        rewrite(folder, lambda tensors: tensors.pop(BACKBONES["bert"].bias_keys()[0]))

    monkeypatch.setattr(type(model), "save_pretrained", forget_the_bias)
    with pytest.raises(ModelError, match="other logits after a reload"):
        save_model(model, None, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_cannot_be_loaded_is_not_kept(tmp_path, monkeypatch):
    model = build("bert")
    monkeypatch.setattr(type(model), "save_pretrained", lambda self, folder: (folder / "config.json").write_text("{"))
    with pytest.raises(ModelError, match="cannot be loaded again") as caught:
        save_model(model, None, tmp_path / "model")
    assert list(tmp_path.iterdir()) == [] and "\n" not in str(caught.value)


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    model = build("bert")

    def fail(self, folder):
        (folder / "config.json").write_text("{")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(model), "save_pretrained", fail)
    with pytest.raises(ModelError, match="No space left"):
        save_model(model, None, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_folders_in_use_are_not_touched(tmp_path, same_process):
    model = build("bert")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name in ("full", "file"):
        with pytest.raises(ConfigError, match="not an empty folder"):
            save_model(model, None, tmp_path / name)
    assert (tmp_path / "full" / "note").read_text() == (tmp_path / "file").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    save_model(model, None, tmp_path / "empty")
    assert (tmp_path / "empty" / "model.safetensors").is_file()


def test_weights_that_are_no_numbers_are_not_saved(tmp_path):
    model = build("bert")
    with torch.no_grad():
        find_head(model).bias[3] = torch.nan
    with pytest.raises(ModelError, match="not finite"):
        save_model(model, None, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("scope", ["shared", "balanced", "untied"])
@pytest.mark.parametrize("model_type", ["bert", "albert", "roberta", "distilbert", "modernbert"])
def test_transformers_4_reads_the_same_logits(model_type, scope, tmp_path, same_process, other_transformers):
    model = build(model_type)
    rescale_head(model, 16, scope=scope)
    save_model(model, None, tmp_path / "model")
    request, want = head_module._reference(model, None)
    other_transformers(tmp_path / "model", request, tmp_path / "answer.npy")
    np.testing.assert_allclose(np.load(tmp_path / "answer.npy"), want, atol=1e-4 * np.abs(want).max())


def test_transformers_4_saves_what_we_read(tmp_path, other_transformers):
    """An untied BERT saved by 4.x has its bias under the twin's name only."""
    model = build("bert")
    model.config.tie_word_embeddings = False
    model.config.save_pretrained(tmp_path / "config")
    code = (
        "import sys, torch; from transformers import AutoConfig, AutoModelForMaskedLM; torch.manual_seed(0);"
        f"model = AutoModelForMaskedLM.from_config(AutoConfig.from_pretrained({str(tmp_path / 'config')!r})).eval();"
        "torch.nn.init.normal_(model.cls.predictions.bias);"
        f"model.save_pretrained({str(tmp_path / 'model')!r})"
    )
    other_transformers.run(["-c", code])
    assert BACKBONES["bert"].bias_keys()[0] not in saved_keys(tmp_path / "model")
    loaded = load_masked_lm(str(tmp_path / "model"))
    assert find_head(loaded).bias.abs().max() > 0.1
    request, want = head_module._reference(loaded, None)
    other_transformers(tmp_path / "model", request, tmp_path / "answer.npy")
    np.testing.assert_allclose(np.load(tmp_path / "answer.npy"), want, atol=1e-4)


def test_splade_tiny_is_found_and_tied(splade_tiny):
    model = load_masked_lm(splade_tiny)
    head = find_head(model)
    norms = head.weight.detach().double().norm(dim=1)
    assert tuple(head.weight.shape) == (30522, 128) and head.tied and stored_policy(model) is None
    assert round(norms.mean().item(), 4) == 0.6819 and round(norms.max().item(), 4) == 1.0220


@pytest.mark.parametrize("k", [1e299, 1e45, 1e-45, 10**400])
@pytest.mark.parametrize("scope", ["shared", "balanced", "untied"])
def test_factor_that_would_kill_the_head_changes_nothing(k, scope):
    model = build("bert")
    before = model.get_output_embeddings().weight.detach().clone()
    with pytest.raises(ConfigError, match="cannot be used"):
        rescale_head(model, k, scope=scope)
    assert torch.equal(model.get_output_embeddings().weight, before) and not hasattr(model.config, "splade_rescale")
