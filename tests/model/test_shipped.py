"""The backbones that come with the package: found by name, small, whole, and with the head that makes the case."""

import pytest
import torch
from safetensors import safe_open

from pyserini_rescale.docstrings import read_passages
from pyserini_rescale.model import shipped
from pyserini_rescale.model.diagnose import diagnose
from pyserini_rescale.model.head import find_head, load_masked_lm
from pyserini_rescale.model.policy import split_name
from pyserini_rescale.model.pooled import pool_texts
from pyserini_rescale.model.shipped import SHIPPED, shipped_folder
from pyserini_rescale.model.texts import pairs_of
from pyserini_rescale.model.tokenizer import load_tokenizer


def test_a_name_is_a_folder_of_the_package_unless_one_lies_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in SHIPPED:
        assert shipped_folder(name) == str(shipped._FOLDER / name)
        assert split_name(f"splade-rescaled:{name}") == (str(shipped._FOLDER / name), True)
    assert shipped_folder("bert-base-uncased") == "bert-base-uncased"
    (tmp_path / SHIPPED[0]).mkdir()
    assert shipped_folder(SHIPPED[0]) == SHIPPED[0]


@pytest.mark.parametrize("name", SHIPPED)
def test_it_is_small_float16_and_whole(name):
    folder = shipped._FOLDER / name
    assert sum(path.stat().st_size for path in folder.iterdir()) < 6e6
    with safe_open(folder / "model.safetensors", "pt") as weights:
        assert {str(weights.get_tensor(key).dtype) for key in weights.keys()} == {"torch.float16"}
    model, tokenizer = load_masked_lm(name), load_tokenizer(name)
    head = find_head(model)
    assert model.dtype == torch.float32 and head.tied and head.bias is not None
    assert len(tokenizer) == head.weight.shape[0]


@pytest.mark.parametrize("name", SHIPPED)
def test_it_was_trained(name):
    """At a masked position of plain prose the head is far better than chance, and unmasked tokens stand for themselves."""
    model, tokenizer = load_masked_lm(name), load_tokenizer(name)
    ids = tokenizer("Return the number of items in the list. Raises an error if the file does not exist.")["input_ids"]
    plain = torch.tensor([ids])
    with torch.inference_mode():
        own = (model(input_ids=plain).logits[0].argmax(-1) == plain[0])[1:-1].float().mean()
        ranks = []
        for place in range(1, len(ids) - 1):
            masked = plain.clone()
            masked[0, place] = tokenizer.mask_token_id
            logits = model(input_ids=masked).logits[0, place]
            ranks.append(int((logits > logits[ids[place]]).sum()))
    assert own > 0.5
    assert sorted(ranks)[len(ranks) // 2] < 50  # of 8,192


def test_the_modernbert_type_fails_at_k_1_as_it_is():
    """Dense vectors and a saturated loss without any enlargement: what arXiv 2606.18811 says of ModernBERT."""
    passages = read_passages()[::30]
    texts = pairs_of("docstrings", [{"query": one.query, "passage": one.text} for one in passages])
    pooled = pool_texts(load_masked_lm("mini-modernbert"), load_tokenizer("mini-modernbert"), texts)
    as_it_is = diagnose(pooled)
    assert as_it_is.verdict == "too large"
    assert as_it_is.documents.active > 0.5 * as_it_is.vocabulary
    assert as_it_is.loss > 10 * as_it_is.chance
