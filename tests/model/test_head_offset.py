"""Bias offsets: the constant is the exact quantile, unseen by the masked-LM, and reaches every copy of the bias."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pyserini_rescale.errors import ConfigError, ModelError
from pyserini_rescale.model.backbones import BACKBONES
from pyserini_rescale.model.head import rescale_head, stored_policy
from pyserini_rescale.model.offset import Offset, apply_offset, choose_offset, constant_for_share
from pyserini_rescale.model.policy import KEY
from pyserini_rescale.model.undo import undo_head
from tests.model.builders import FAMILIES, build
from tests.model.head_models import bias_of, run


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), texts=st.integers(1, 9), terms=st.integers(2, 300), share=st.floats(0.001, 0.999))
def test_exactly_the_asked_number_of_values_is_above(seed, texts, terms, share):
    values = torch.from_numpy(np.random.default_rng(seed).normal(2.0, 3.0, (texts, terms)).astype(np.float32))
    count = round(share * values.numel())
    if not 0 < count < values.numel():
        with pytest.raises(ConfigError, match="choose another"):
            constant_for_share(values, share)
        return
    constant = constant_for_share(values, share)
    assert int((values > constant).sum()) == count
    # and it is the middle of its gap
    above, below = values[values > constant].min(), values[values <= constant].max()
    assert constant == pytest.approx((float(above) + float(below)) / 2)


def test_quantile_worked_out_by_hand():
    assert constant_for_share(torch.tensor([[1.0, 2.0], [4.0, 8.0]]), 0.5) == 3.0
    assert constant_for_share(torch.tensor([[1.0, 2.0], [4.0, 8.0]]), 0.25) == 6.0


def test_per_term_levels_every_term_first():
    values = torch.tensor([[1.0, 10.0, -5.0], [3.0, 10.0, -3.0]])
    offset = choose_offset(values, "per-term", 1 / 3)
    assert offset.terms.tolist() == [2.0, 10.0, -4.0]
    # left: -1, 0, -1, 1, 0, 1; a third of six is two, between 1 and 0
    assert offset.constant == 0.5 and offset.rule == "per-term"
    assert torch.equal(offset.total(), torch.tensor([2.5, 10.5, -3.5]))


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, float("nan"), True, "half"])
def test_shares_that_are_none(share):
    with pytest.raises(ConfigError, match="between 0 and 1"):
        choose_offset(torch.randn(3, 50), "auto", share)


def test_per_term_needs_several_texts():
    with pytest.raises(ConfigError, match="several texts"):
        choose_offset(torch.randn(1, 50), "per-term", 0.1)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_constant_moves_logits_and_no_probability(model_type):
    model = build(model_type)
    hidden, logits = run(model)
    apply_offset(model, Offset(2.5, "constant"))
    new_hidden, new_logits = run(model)
    assert torch.equal(hidden, new_hidden)
    assert torch.allclose(new_logits, logits - 2.5, atol=1e-5)
    assert torch.allclose(new_logits.softmax(-1), logits.softmax(-1), atol=1e-6)
    policy = stored_policy(model)
    assert (policy.bias_offset, policy.offset_rule, policy.term_offsets, policy.k) == (2.5, "constant", None, 1.0)


def test_per_term_changes_probabilities():
    model = build("bert")
    _, logits = run(model)
    apply_offset(model, Offset(0.0, "per-term", torch.linspace(-1, 1, model.config.vocab_size), 0.1))
    assert (run(model)[1].softmax(-1) - logits.softmax(-1)).abs().max() > 0.01


@pytest.mark.parametrize("scope", [None, "shared", "untied"])
@pytest.mark.parametrize("model_type", FAMILIES)
def test_every_copy_of_the_bias_has_it(model_type, scope):
    """transformers 4.x reads one name of the bias, 5.x the other."""
    model = build(model_type)
    if scope is not None:
        rescale_head(model, 2, scope=scope)
    bias = bias_of(model)
    named = [name for name, value in model.state_dict().items() if torch.equal(value, bias)]
    assert len(named) == (2 if BACKBONES[model_type].bias_twin else 1)
    apply_offset(model, Offset(1.0, "constant"))
    for name in named:
        assert torch.allclose(model.state_dict()[name], bias - 1.0), name


def test_a_second_offset_and_a_rescale_after_it_are_refused():
    model = build("bert")
    apply_offset(model, Offset(1.0, "constant"))
    _, logits = run(model)
    with pytest.raises(ModelError, match="offset already"):
        apply_offset(model, Offset(1.0, "constant"))
    with pytest.raises(ModelError, match="bias offset"):
        rescale_head(model, 2)
    assert torch.equal(run(model)[1], logits)


def test_no_bias_no_offset():
    model = build("modernbert", decoder_bias=False)
    with pytest.raises(ModelError, match="no bias"):
        apply_offset(model, Offset(1.0, "constant"))
    assert not hasattr(model.config, KEY)


@pytest.mark.parametrize(
    "offset",
    [
        Offset(math.nan, "constant"),
        Offset(math.inf, "constant"),
        Offset(0.0, "per-term", torch.tensor([math.nan] * 103)),
        Offset(0.0, "per-term", torch.zeros(7)),
        Offset(0.0, "of my own"),
    ],
)
def test_offsets_that_cannot_be_used_change_nothing(offset):
    model = build("bert")
    _, logits = run(model)
    with pytest.raises(ConfigError):
        apply_offset(model, offset)
    assert torch.equal(run(model)[1], logits) and not hasattr(model.config, KEY)


def test_undo_is_within_the_rounding_of_the_sum():
    model = build("bert")
    bias = bias_of(model)
    apply_offset(model, Offset(7.25, "per-term", torch.full((103,), 1e3), 0.1))
    undo_head(model)
    assert (bias_of(model) - bias).abs().max() <= 1e3 * 2**-23
    assert not hasattr(model.config, KEY)
