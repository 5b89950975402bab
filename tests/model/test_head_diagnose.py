"""The figures of a head on texts, against plain transformers and numpy; and the verdicts."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch

from pyserini_rescale.errors import ConfigError, ModelError
from pyserini_rescale.model.diagnose import diagnose, in_batch_loss
from pyserini_rescale.model.head import rescale_head
from pyserini_rescale.model.offset import Offset, apply_offset
from pyserini_rescale.model.policy import KEY, Policy
from pyserini_rescale.model.pooled import hidden_states, pool_texts, relative_movement, token_ids, usable_length
from pyserini_rescale.model.texts import Texts
from tests.model.builders import FAMILIES, build, make_word_tokenizer
from tests.model.head_texts import model_and_tokenizer, pairs


def plain_vectors(model, tokenizer, texts, length=256) -> np.ndarray:
    """SPLADE vectors one text at a time, straight from the formulas (arXiv 2606.18811, Eq. 1 and 2), float64."""
    rows = []
    for text in texts:
        ids = torch.tensor([tokenizer(text, truncation=True, max_length=length)["input_ids"]])
        with torch.inference_mode():
            logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0].double().numpy()
        rows.append(np.log1p(np.maximum(logits, 0)).max(axis=0))
    return np.array(rows)


@pytest.mark.parametrize("negatives", [0, 5])
@pytest.mark.parametrize("model_type", FAMILIES)
def test_figures_are_those_of_plain_vectors(model_type, negatives):
    model, tokenizer = model_and_tokenizer(model_type)
    texts = pairs(7, negatives)
    found = diagnose(pool_texts(model, tokenizer, texts, 14))
    queries, documents = (plain_vectors(model, tokenizer, some, 14) for some in (texts.queries, texts.documents))
    for side, vectors in ((found.queries, queries), (found.documents, documents)):
        impacts = np.rint(vectors * 256 / 5)
        assert side.active == pytest.approx((vectors > 0).sum(axis=1).mean(), abs=0.2)
        assert side.indexed == pytest.approx((impacts > 0).sum(axis=1).mean(), abs=0.2)
        assert side.empty == (impacts.sum(axis=1) == 0).mean() and side.texts == len(vectors)
        assert side.weight_mean == pytest.approx(vectors[vectors > 0].mean(), rel=1e-4)
        assert side.weight_max == pytest.approx(vectors.max(), rel=1e-5)
    scores = queries @ documents.T
    own = np.arange(7)
    others = scores.copy()
    others[own, own] = np.nan
    assert found.match_score == pytest.approx(scores[own, own].mean(), rel=1e-5)
    assert found.other_score == pytest.approx(np.nanmean(others), rel=1e-5)
    largest = scores.max(axis=1, keepdims=True)
    losses = largest[:, 0] + np.log(np.exp(scores - largest).sum(axis=1)) - scores[own, own]
    assert found.loss == pytest.approx(losses.mean(), rel=1e-4, abs=1e-3)
    assert found.candidates == 7 + negatives and found.chance == pytest.approx(math.log(7 + negatives))
    assert found.first == (scores[own, own] > np.nanmax(others, axis=1)).mean()
    units = documents[:7] / np.linalg.norm(documents[:7], axis=1, keepdims=True)
    cosines = units @ units.T
    assert found.cosine == pytest.approx(cosines[~np.eye(7, dtype=bool)].mean(), rel=1e-5)
    special = [number for number in tokenizer.all_special_ids]
    assert found.special_share == pytest.approx(documents[:, special].sum() / documents.sum(), rel=1e-4)
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize("scope", ["balanced", "untied"])
@pytest.mark.parametrize("rescale_bias", [False, True])
def test_any_k_and_offset_is_foretold_from_one_pass(scope, rescale_bias):
    model, tokenizer = model_and_tokenizer()
    pooled = pool_texts(model, tokenizer, pairs())
    terms = torch.linspace(-1, 1, 2000)
    told = diagnose(pooled, 8, rescale_bias=rescale_bias, offset=terms + 0.5)
    rescale_head(model, 8, scope=scope, rescale_bias=rescale_bias)
    apply_offset(model, Offset(0.5, "per-term", terms, 0.1))
    seen = diagnose(pool_texts(model, tokenizer, pairs()))
    assert told.loss == pytest.approx(seen.loss, rel=1e-4) and told.cosine == pytest.approx(seen.cosine, rel=1e-4)
    assert told.documents.active == pytest.approx(seen.documents.active, abs=0.2)


def test_loss_worked_out_by_hand():
    # two queries, three candidates; the first is right by 1 over both others, the second wrong by 2 and right by 1
    scores = torch.tensor([[3.0, 2.0, 2.0], [5.0, 3.0, 2.0]])
    first = math.log(1 + 2 * math.exp(-1))
    second = math.log(1 + math.exp(2) + math.exp(-1))
    assert in_batch_loss(scores) == pytest.approx((first + second) / 2)
    assert in_batch_loss(torch.zeros(4, 8)) == pytest.approx(math.log(8))
    with pytest.raises(ModelError, match="not finite"):
        in_batch_loss(torch.tensor([[math.inf, 0.0]]))


def test_quantisation_follows_the_policy():
    model, tokenizer = model_and_tokenizer()
    fine = diagnose(pool_texts(model, tokenizer, pairs()), 50)
    setattr(model.config, KEY, Policy(quant_range=10).to_dict())
    coarse = diagnose(pool_texts(model, tokenizer, pairs()), 50)
    assert coarse.documents.active == fine.documents.active and coarse.documents.indexed < 0.8 * fine.documents.indexed


def test_verdicts():
    model, tokenizer = model_and_tokenizer()
    pooled = pool_texts(model, tokenizer, pairs())
    bias = torch.zeros(2000)
    pooled = dataclasses.replace(pooled, bias=bias)
    as_is = diagnose(pooled)
    assert as_is.verdict == "too large" and "%" in as_is.line() and "in-batch loss" in as_is.line()
    assert diagnose(pooled, 1e4).verdict == "too small"
    gone = diagnose(pooled, offset=1e6)
    assert gone.verdict == "too small" and "have no term" in gone.line() and gone.documents.weight_mean is None
    assert gone.special_share is None and gone.cosine is None and gone.loss == pytest.approx(gone.chance)
    level = float(torch.quantile(pooled.documents.flatten(), 0.98))
    some = diagnose(pooled, 3, offset=level / 3)
    assert some.verdict == "healthy" and len(some.reasons) == 4
    # the bias alone: every text has the same terms, few of them
    same = dataclasses.replace(pooled, bias=torch.cat([torch.ones(100), -torch.ones(1900)]))
    alike = diagnose(same, 1e4)
    assert alike.verdict == "too small" and "the bias decides" in alike.line()


def test_texts_without_pairs():
    model, tokenizer = model_and_tokenizer()
    words = diagnose(pool_texts(model, tokenizer, Texts("test", ("w1", "w2"), (), (), halved=True)))
    assert words.queries is None and words.loss is None and words.cosine is None and "no pairs" not in words.verdict
    halved = Texts("test", ("w1 w2 w3 w4", "w5 w6"), ("w1 w2", "w5"), ("w3 w4", "w6"), halved=True)
    found = diagnose(pool_texts(model, tokenizer, halved))
    whole = plain_vectors(model, tokenizer, halved.documents)
    half = plain_vectors(model, tokenizer, halved.passages)
    assert found.documents.weight_max == pytest.approx(whole.max(), rel=1e-5) and found.candidates == 2
    scores = plain_vectors(model, tokenizer, halved.queries) @ half.T
    assert found.match_score == pytest.approx(scores.diagonal().mean(), rel=1e-5)


def test_lengths():
    model, tokenizer = model_and_tokenizer()  # 32 positions
    assert usable_length(model, tokenizer, None) == 32 and usable_length(model, tokenizer, 9, 7) == 9
    assert usable_length(model, tokenizer, None, 7) == 7
    with pytest.raises(ConfigError, match="beyond the 32 positions"):
        usable_length(model, tokenizer, 33)
    with pytest.raises(ConfigError, match="no room"):
        usable_length(model, tokenizer, 2)
    setattr(model.config, KEY, Policy(query_length=4, document_length=5).to_dict())
    texts = pairs(3)
    found = diagnose(pool_texts(model, tokenizer, texts))
    queries, documents = (
        plain_vectors(model, tokenizer, texts.queries, 4),
        plain_vectors(model, tokenizer, texts.documents, 5),
    )
    assert found.match_score == pytest.approx((queries @ documents.T).diagonal().mean(), rel=1e-5)


def test_tokenizers_of_other_models_are_refused():
    model = build("bert")
    with pytest.raises(ModelError, match="another model's"):
        pool_texts(model, make_word_tokenizer(model, [f"w{n}" for n in range(1900)]), pairs())


def test_hidden_states_and_movement():
    model, tokenizer = model_and_tokenizer()
    sequences = token_ids(model, tokenizer, pairs().documents, 32)
    before = hidden_states(model, sequences)
    assert before.shape == (sum(map(len, sequences)), 24)
    rescale_head(model, 16, scope="shared")
    after = hidden_states(model, sequences)
    assert relative_movement(before, before) == 0
    assert relative_movement(before, after) == pytest.approx(float((after - before).norm() / before.norm()), rel=1e-5)
    assert relative_movement(before, after) > 0.1
    expected = relative_movement(torch.tensor([[3.0, 4.0]]), torch.tensor([[3.0, 5.0]]))
    assert expected == pytest.approx(0.2)
