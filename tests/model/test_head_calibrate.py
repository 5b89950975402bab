"""Choosing k and offset: the rules hold, what is applied is what was chosen, refusals change nothing."""

import dataclasses
import math

import pytest
import torch

from pyserini_rescale.errors import ConfigError, DataError, ModelError
from pyserini_rescale.model.calibrate import (
    FACTORS,
    NEAR_LEAST,
    calibrate_head,
    check_request,
    choose_factor,
    recommended_scope,
    settings_as_dicts,
    suggest,
)
from pyserini_rescale.model.diagnose import FEW, LOSS_LIMIT, diagnose
from pyserini_rescale.model.head import load_masked_lm, rescale_head, save_model, stored_policy
from pyserini_rescale.model.offset import choose_offset
from pyserini_rescale.model.policy import KEY, Policy
from pyserini_rescale.model.pooled import pool_texts
from pyserini_rescale.model.texts import Texts
from pyserini_rescale.model.tokenizer import load_tokenizer
from pyserini_rescale.model.undo import undo_head
from tests.model.builders import FAMILIES, PROBED, build
from tests.model.head_models import bias_of, relative, run
from tests.model.head_texts import model_and_tokenizer, pairs
from tests.model.test_head_diagnose import plain_vectors


@pytest.fixture(scope="module")
def pooled():
    model, tokenizer = model_and_tokenizer()
    return pool_texts(model, tokenizer, pairs())


def good(figures) -> bool:
    enough = figures.queries.indexed >= FEW and figures.documents.indexed >= FEW
    return figures.loss <= LOSS_LIMIT * figures.chance and enough


@pytest.mark.parametrize("rescale_bias", [False, True])
def test_the_factor_alone_is_the_smallest_that_keeps_the_rule(pooled, rescale_bias):
    k = choose_factor(pooled, rescale_bias=rescale_bias)
    assert k is not None and good(diagnose(pooled, k, rescale_bias=rescale_bias))
    assert not any(good(diagnose(pooled, smaller, rescale_bias=rescale_bias)) for smaller in FACTORS if smaller < k)


@pytest.mark.parametrize("rule", ["auto", "per-term"])
@pytest.mark.parametrize("rescale_bias", [False, True])
def test_the_factor_with_an_offset_is_the_smallest_near_the_least_loss(pooled, rule, rescale_bias):
    def figures(k):
        offset = choose_offset(pooled.logits(pooled.documents, k, rescale_bias), rule, 0.02).total()
        return diagnose(pooled, k, rescale_bias=rescale_bias, offset=offset)

    k = choose_factor(pooled, offset_rule=rule, share=0.02, rescale_bias=rescale_bias)
    assert k is not None and good(figures(k))
    losses = {factor: one.loss for factor in FACTORS if good(one := figures(factor))}
    assert k == min(factor for factor, loss in losses.items() if loss <= NEAR_LEAST * min(losses.values()))


def test_no_factor_where_none_does(pooled):
    assert choose_factor(dataclasses.replace(pooled, bias=torch.full((2000,), -1e4))) is None


def test_factors_are_ascending_from_one():
    assert FACTORS[0] == 1 and all(a < b <= 1.5 * a for a, b in zip(FACTORS, FACTORS[1:], strict=False))


def test_suggestion_for_a_dense_start():
    model, tokenizer = model_and_tokenizer()
    _, logits = run(model)
    pooled = pool_texts(model, tokenizer, pairs())
    suggestion = suggest(model, pooled, share=0.02)
    assert torch.equal(run(model)[1], logits) and not hasattr(model.config, KEY)
    as_is = suggestion.settings[0]
    assert (
        as_is.k == 1 and as_is.offset is None and as_is.diagnosis.verdict == "too large" and as_is.name() == "as it is"
    )
    best = suggestion.recommended
    assert best.offset.rule == "auto" and best.diagnosis.verdict == "healthy" and suggestion.scope == "balanced"
    assert best.diagnosis.documents.active == pytest.approx(0.02 * 2000, rel=0.01)
    rules = {setting.offset and setting.offset.rule for setting in suggestion.settings}
    assert rules == {None, "auto", "per-term"}
    rows = settings_as_dicts(suggestion)
    assert sum(row["recommended"] for row in rows) == 1 and len(rows) == len(suggestion.settings)
    # what is recommended can be had by the command's function, and is what was foretold
    done = calibrate_head(
        model, tokenizer, factor=best.k, scope=suggestion.scope, bias_offset="auto", target_active=0.02, texts=pairs()
    )
    assert done.after.loss == pytest.approx(best.diagnosis.loss, rel=1e-3)
    assert stored_policy(model).bias_offset == pytest.approx(best.offset.constant, rel=1e-4)


def test_a_healthy_head_is_left_alone():
    model, tokenizer = model_and_tokenizer()
    calibrate_head(model, tokenizer, factor="auto", bias_offset="auto", target_active=0.02, texts=pairs())
    undone = load_like(model)
    suggestion = suggest(undone, pool_texts(undone, tokenizer, pairs()))
    assert suggestion.recommended is suggestion.settings[0]


def load_like(model):
    """The same weights without our key."""
    other, _ = model_and_tokenizer()
    other.load_state_dict(model.state_dict())
    return other


def test_without_a_bias_only_k_is_suggested():
    model, tokenizer = model_and_tokenizer("modernbert", decoder_bias=False)
    suggestion = suggest(model, pool_texts(model, tokenizer, pairs()))
    assert all(setting.offset is None for setting in suggestion.settings)


def test_nothing_healthy_nothing_recommended():
    model, tokenizer = model_and_tokenizer("modernbert", decoder_bias=False)
    with torch.no_grad():
        model.get_output_embeddings().weight.zero_()
    assert suggest(model, pool_texts(model, tokenizer, pairs())).recommended is None


@pytest.mark.parametrize("model_type", [*FAMILIES, *PROBED])
def test_recommended_scope(model_type):
    model = build(model_type)
    assert recommended_scope(model) == ("untied" if model_type in PROBED else "balanced")
    if model_type in FAMILIES:
        rescale_head(model, 2, scope="untied")
        assert recommended_scope(model) == "untied"


@pytest.mark.parametrize("scope", [None, "shared", "balanced", "untied"])
@pytest.mark.parametrize("model_type", FAMILIES)
def test_auto_offset_meets_the_share_on_the_texts(model_type, scope):
    """Alone and after a rescale; counted by plain transformers, text by text."""
    model, tokenizer = model_and_tokenizer(model_type)
    _, logits = run(model)
    texts = pairs(6, 3)
    factor = None if scope is None else 4
    done = calibrate_head(
        model, tokenizer, factor=factor, scope=scope, bias_offset="auto", target_active=0.03, texts=texts
    )
    share = (plain_vectors(model, tokenizer, texts.documents) > 0).mean()
    assert share == pytest.approx(0.03, rel=0.1)
    assert done.after.documents.active == pytest.approx(2000 * share, abs=0.5)
    if scope is None:
        assert (run(model)[1].softmax(-1) - logits.softmax(-1)).abs().max() < 1e-5
        assert done.movement == 0.0
    assert stored_policy(model).target_active == 0.03


def test_per_term_offset_is_each_terms_mean_then_the_constant():
    model, tokenizer = model_and_tokenizer()
    texts, bias = pairs(), bias_of(model)
    before = pool_texts(model, tokenizer, texts)
    means = before.logits(before.documents).mean(dim=0)
    calibrate_head(model, tokenizer, bias_offset="per-term", target_active=0.03, texts=texts)
    policy = stored_policy(model)
    assert torch.allclose(bias - bias_of(model), means + policy.bias_offset, atol=1e-4)
    assert (plain_vectors(model, tokenizer, texts.documents) > 0).mean() == pytest.approx(0.03, rel=0.01)


def test_movement_is_reported_for_every_scope():
    moved = {}
    for scope in ("shared", "balanced", "untied"):
        model, tokenizer = model_and_tokenizer()
        moved[scope] = calibrate_head(model, tokenizer, factor=16, scope=scope, texts=pairs()).movement
    assert moved["untied"] < 1e-6 and moved["balanced"] < 1e-4 and moved["shared"] > 0.1
    # without a tokenizer, on fixed token ids
    model, _ = model_and_tokenizer()
    done = calibrate_head(model, None, factor=16, scope="shared")
    assert done.movement > 0.1 and done.before is None and done.after is None


def test_scope_none_is_the_recommended_one():
    model, tokenizer = model_and_tokenizer()
    assert calibrate_head(model, tokenizer, factor=2, texts=pairs()).policy.scope == "balanced"


def test_saved_and_undone(tmp_path):
    model, tokenizer = model_and_tokenizer("modernbert")
    _, logits = run(model)
    calibrate_head(model, tokenizer, factor="auto", bias_offset="per-term", texts=pairs())
    _, changed = run(model)
    save_model(model, tokenizer, tmp_path / "saved")
    loaded = load_masked_lm(str(tmp_path / "saved"))
    assert relative(changed, run(loaded)[1]) < 1e-6
    undo_head(loaded)
    assert relative(logits, run(loaded)[1]) < 1e-5 and not hasattr(loaded.config, KEY)


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"factor": 0},
        {"factor": -2.0},
        {"factor": math.nan},
        {"factor": "most"},
        {"factor": 2, "scope": "tied"},
        {"rescale_bias": True, "bias_offset": 1.0},
        {"bias_offset": math.inf},
        {"bias_offset": "mean"},
        {"bias_offset": "constant"},
        {"bias_offset": "auto", "target_active": 0},
        {"bias_offset": "auto", "target_active": 1},
        {"bias_offset": "auto", "target_active": math.nan},
        {"bias_offset": "auto", "target_active": 1e-9},
        {"factor": "auto", "bias_offset": 3.0},
    ],
)
def test_requests_that_mean_nothing_change_nothing(request_):
    model, tokenizer = model_and_tokenizer()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(ConfigError) as raised:
        calibrate_head(model, tokenizer, texts=pairs(), **request_)
    assert "\n" not in str(raised.value)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items()) and not hasattr(
        model.config, KEY
    )


def test_what_cannot_be_measured_is_refused():
    model, tokenizer = model_and_tokenizer()
    for request in (
        {"factor": "auto"},
        {"bias_offset": "auto"},
        {"bias_offset": "per-term"},
        {"factor": 2, "texts": pairs()},
    ):
        with pytest.raises(ModelError, match="no tokenizer"):
            calibrate_head(model, None, **request)
    words = Texts("test", ("w1", "w2"), (), (), halved=True)
    with pytest.raises(DataError, match="fewer than two pairs"):
        calibrate_head(model, tokenizer, factor="auto", texts=words)
    with pytest.raises(DataError, match="fewer than two pairs"):
        suggest(model, pool_texts(model, tokenizer, words))
    with torch.no_grad():
        model.get_output_embeddings().bias.fill_(-1e4)
    with pytest.raises(ModelError, match="no k from 1 to 256"):
        calibrate_head(model, tokenizer, factor="auto", texts=pairs())
    assert not hasattr(model.config, KEY)


def test_calibrated_models_are_not_calibrated_again():
    model, tokenizer = model_and_tokenizer()
    calibrate_head(model, tokenizer, factor=2, texts=pairs())
    with pytest.raises(ModelError, match="rescaled before"):
        calibrate_head(model, tokenizer, factor=2, texts=pairs())
    with pytest.raises(ModelError, match="calibrated already"):
        suggest(model, pool_texts(model, tokenizer, pairs()))
    calibrate_head(model, tokenizer, bias_offset="auto", texts=pairs())  # one rescale, one offset, in two steps
    with pytest.raises(ModelError, match="offset already"):
        calibrate_head(model, tokenizer, bias_offset=1.0, texts=pairs())


def test_no_bias_no_offset():
    model, tokenizer = model_and_tokenizer("modernbert", decoder_bias=False)
    with pytest.raises(ModelError, match="no bias"):
        calibrate_head(model, tokenizer, factor=2, bias_offset="auto", texts=pairs())
    assert not hasattr(model.config, KEY)


def test_a_folder_without_a_tokenizer_has_none(tmp_path):
    """transformers 5 makes up a BERT tokenizer of five words."""
    for model_type in ("bert", "modernbert"):
        build(model_type).save_pretrained(tmp_path / model_type)
        with pytest.raises(ModelError, match="tokenizer"):
            load_tokenizer(str(tmp_path / model_type))


def test_splade_tiny_is_healthy_and_shared_k_16_is_not(splade_tiny):
    """A trained model: nothing to change. Divided by 16 as in the paper, texts look alike; states kept, less so."""
    from pyserini_rescale.model.texts import builtin_texts

    model, tokenizer = load_masked_lm(splade_tiny), load_tokenizer(splade_tiny)
    suggestion = suggest(model, pool_texts(model, tokenizer, builtin_texts()))
    assert suggestion.recommended is suggestion.settings[0]
    figures = {}
    for scope in ("shared", "balanced"):
        model = load_masked_lm(splade_tiny)
        done = calibrate_head(model, tokenizer, factor=16, scope=scope)
        figures[scope] = done.after
        assert done.movement == pytest.approx(0.72 if scope == "shared" else 0.0, abs=0.01)
    assert figures["shared"].verdict == "too small" and figures["shared"].cosine > 0.99
    assert figures["balanced"].verdict == "healthy" and figures["balanced"].cosine < 0.8


def test_check_request_needs_no_model():
    check_request(factor=16, scope="shared", rescale_bias=False, bias_offset=None, target_active=0.015)
    check_request(factor="auto", scope=None, rescale_bias=True, bias_offset="per-term", target_active=0.5)


@pytest.mark.parametrize("said", [{"scope": "balanced"}, {"scope": "shared", "rescale_bias": True}])
def test_an_undo_that_the_model_gives_no_ground_for_is_refused_before_anything_changes(said):
    """What config.json says was not done to this model: it has no row in the table, or no bias."""
    model = build("bert")
    kind = model.config.model_type
    if "rescale_bias" in said:
        model.get_output_embeddings().bias = None
    setattr(model.config, KEY, Policy(k=2.0, tied_before=True, **said).to_dict())
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    if said["scope"] == "balanced":
        model.config.model_type = "other"
    with pytest.raises(ModelError, match="cannot be undone|the head has none"):
        undo_head(model)
    model.config.model_type = kind
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
