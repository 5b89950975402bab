"""What a run leaves: a folder that plain transformers, our encoders and sentence-transformers read alike."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM, AutoTokenizer

from pyserini_rescale.errors import ConfigError, DataError, ModelError
from pyserini_rescale.model.head import find_head, load_masked_lm, stored_policy
from pyserini_rescale.model.splade import pad, plain_pool, splade_vectors
from pyserini_rescale.train.config import resolve
from pyserini_rescale.train.export import export
from pyserini_rescale.train.prepare import calibration_texts, prepare
from tests.model.builders import build
from tests.train.conftest import FILLERS, launch, save_backbone

TEXTS = ["The wind tunnel", "heat FLOW of a shock wave", "sparse retrieval sparse retrieval lift", "drag"]


def vectors_of(folder, texts, length):
    """Return the vectors of texts by plain transformers (N, V)."""
    model, tokenizer = AutoModelForMaskedLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    ids, mask = pad(tokenizer(texts, truncation=True, max_length=length)["input_ids"], tokenizer.pad_token_id)
    with torch.inference_mode():
        return plain_pool(model(input_ids=ids, attention_mask=mask).logits, mask)


def assert_read_alike(folder, texts):
    """Our encoder, plain transformers and SparseEncoder give texts the same vectors (N, V), which are returned."""
    from sentence_transformers import SparseEncoder

    from pyserini_rescale.encode.encoder import SpladeRescaledDocumentEncoder

    plain = vectors_of(folder, texts, 12)
    assert (plain > 0).any(dim=1).all()
    ours = SpladeRescaledDocumentEncoder(str(folder), device="cpu")
    tokens = ours.tokenizer(texts, truncation=True, max_length=12)["input_ids"]
    exact = splade_vectors(ours.model, find_head(ours.model), *pad(tokens, ours.tokenizer.pad_token_id))
    torch.testing.assert_close(plain, exact, rtol=1e-5, atol=1e-5)
    impacts = [{term: round(256 / 5 * weight) for term, weight in enumerate(row) if weight} for row in plain.tolist()]
    expected = [{ours.terms[term]: impact for term, impact in row.items() if impact} for row in impacts]
    assert all(expected) and ours.encode(texts) == expected
    sparse = SparseEncoder(str(folder), device="cpu", local_files_only=True)
    assert sparse.max_seq_length == 12
    theirs = sparse.encode_document(texts, convert_to_sparse_tensor=False)
    torch.testing.assert_close(theirs.cpu(), plain, rtol=1e-5, atol=1e-5)
    return plain


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model_type", "scope"),
    [
        ("bert", "shared"),
        ("bert", "untied"),
        ("albert", "shared"),
        ("distilbert", "balanced"),
        ("roberta", "balanced"),
        ("modernbert", "untied"),
    ],
)
def test_export_is_read_alike_by_all(config, tmp_path, pyserini_encode, model_type, scope):
    """With a cased tokenizer that the text policy lower-cases, and weights that moved far from where they started."""
    backbone = save_backbone(tmp_path / "cased", model_type, lower=False)
    path = config(
        backbone={"name": backbone}, rescale={"factor": 2, "scope": scope}, max_steps=8,
        text={"query_length": 8, "document_length": 12, "lowercase": True}, optimizer={"learning_rate": 1e-2},
        monitors={"every": 2, "tensorboard": False, "collapse": {"action": "warn"}},
    )  # fmt: skip
    launch(["--config", path])
    folder = tmp_path / "run" / "model"
    policy = stored_policy(load_masked_lm(str(folder)))
    assert (policy.k, policy.scope, policy.query_length, policy.document_length) == (2, scope, 8, 12)
    head = find_head(load_masked_lm(str(folder)))
    assert head.tied == (scope != "untied")
    trained, started = (load_file(one / "model.safetensors") for one in (folder, tmp_path / "run" / "start"))
    assert set(trained) == set(started)
    assert all(weight.dtype == torch.float32 for weight in trained.values())
    shapes = [weight.shape for weight in trained.values()]
    assert shapes.count(head.weight.shape) == (1 if head.tied else 2)
    assert max((trained[name] - started[name]).abs().max() for name in trained) > 1e-3
    assert (head.weight - find_head(load_masked_lm(str(tmp_path / "run" / "start"))).weight).abs().max() > 1e-3
    plain = assert_read_alike(folder, TEXTS)
    lowered = vectors_of(folder, [text.lower() for text in TEXTS], 12)
    torch.testing.assert_close(plain, lowered, rtol=0, atol=0)
    assert (plain - vectors_of(tmp_path / "run" / "start", TEXTS, 12)).abs().max() > 1e-3
    card = (folder / "README.md").read_text()
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["state"] == "finished"
    assert f"{record['last']['contrastive']:.4g}" in card
    assert "k = 2" in card and "retrieval was not measured" in card


def save_byte_level(folder, model_type):
    """Save a random model and a byte-level tokenizer without a prefix space: one token a letter."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    build(model_type).save_pretrained(folder)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())[:90]
    vocabulary = {token: number for number, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", "<mask>", *letters])}
    vocabulary |= {"Ġ": len(vocabulary)}
    inner = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    ends = [("<s>", 0), ("</s>", 2)]
    inner.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    names = {
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "cls_token": "<s>",
        "sep_token": "</s>",
        "mask_token": "<mask>",
    }
    PreTrainedTokenizerFast(tokenizer_object=inner, **names).save_pretrained(folder)


PREFIXED = {"query_length": 8, "document_length": 12, "lowercase": True, "prefix_space": True}


@pytest.mark.parametrize("model_type", ["roberta", "modernbert"])
def test_prefix_space_of_byte_level_tokenizers_survives_in_the_folder(tmp_path, config, triples, model_type):
    save_byte_level(tmp_path / "backbone", model_type)
    path = config(backbone={"name": str(tmp_path / "backbone")}, rescale={"factor": None, "scope": None}, text=PREFIXED)
    prepare(resolve(str(path)), [], tmp_path / "start")
    before, after = (AutoTokenizer.from_pretrained(tmp_path / name) for name in ("backbone", "start"))
    assert after("BC")["input_ids"] == before(" bc")["input_ids"] != before("BC")["input_ids"]
    assert after.model_max_length == 12


@pytest.mark.slow
def test_prefix_space_of_a_trained_model(tmp_path, config, pyserini_encode):
    save_byte_level(tmp_path / "backbone", "roberta")
    path = config(backbone={"name": str(tmp_path / "backbone")}, text=PREFIXED, max_steps=2)
    launch(["--config", path, "--on-collapse", "warn"])
    folder = tmp_path / "run" / "model"
    before, after = (AutoTokenizer.from_pretrained(name) for name in (tmp_path / "backbone", folder))
    assert after("BC")["input_ids"] == before(" bc")["input_ids"] != before("BC")["input_ids"]
    found = assert_read_alike(folder, ["BC", "a wind", "Tunnel"])
    torch.testing.assert_close(found[0], vectors_of(folder, ["bc"], 12)[0], rtol=1e-6, atol=1e-6)


def test_prepare_inflates_an_untied_decoder_only(tmp_path, config, backbone):
    path = config(backbone={"name": backbone, "inflate": 16.0}, rescale={"factor": 16, "scope": "untied"})
    facts = prepare(resolve(str(path)), [], tmp_path / "start")
    original, start = load_masked_lm(backbone), load_masked_lm(str(tmp_path / "start"))
    torch.testing.assert_close(find_head(start).weight, find_head(original).weight)
    torch.testing.assert_close(start.get_input_embeddings().weight, original.get_input_embeddings().weight)
    assert facts["row_norm_before"]["mean"] == pytest.approx(16 * facts["row_norm"]["mean"])
    assert (stored_policy(start).k, stored_policy(start).scope) == (16, "untied")


def rows(count):
    return [
        {"query": f"wind {word}", "positive": f"the {word} of heat", "negative": f"{word} a"}
        for word in FILLERS[:count]
    ]


def test_auto_is_measured_on_the_training_data(tmp_path, config, backbone):
    path = config(rescale={"factor": None, "scope": None, "shift": "auto", "target_active": 0.1})
    facts = prepare(resolve(str(path)), rows(40), tmp_path / "start")
    policy = stored_policy(load_masked_lm(str(tmp_path / "start")))
    assert policy.offset_rule == "auto" and policy.bias_offset != 0
    found = vectors_of(tmp_path / "start", [row["positive"] for row in rows(40)], 12)
    share = (found > 0).float().mean().item()
    assert share == pytest.approx(0.1, abs=0.04)
    assert facts["policy"] == policy.to_dict()


def test_calibration_texts_leave_repeats_out():
    first = rows(3)
    texts = calibration_texts([first[0], {**first[1], "positive": first[0]["positive"]}, first[1], first[2]])
    assert texts.queries == tuple(row["query"] for row in first)


def test_auto_needs_more_than_one_pair(tmp_path, config):
    path = config(rescale={"factor": "auto", "scope": None})
    with pytest.raises(DataError, match="fewer than two pairs"):
        prepare(resolve(str(path)), rows(1) * 5, tmp_path / "start")
    assert not (tmp_path / "start").exists()


def test_a_second_rescale_is_refused(tmp_path, config, backbone):
    prepare(resolve(str(config())), [], tmp_path / "once")
    path = config("again", backbone={"name": str(tmp_path / "once")})
    with pytest.raises(ModelError, match="calibrated already|rescaled before"):
        prepare(resolve(str(path)), [], tmp_path / "twice")
    assert not (tmp_path / "twice").exists()


def test_lengths_beyond_the_positions_are_refused(tmp_path, config):
    path = config(text={"query_length": 8, "document_length": 40})
    with pytest.raises(ConfigError, match="document_length 40 is beyond the 32 positions"):
        prepare(resolve(str(path)), [], tmp_path / "start")


def test_export_refuses_weights_that_were_not_trained(tmp_path, config, backbone):
    prepare(resolve(str(config())), [], tmp_path / "start")
    live = load_masked_lm(str(tmp_path / "start"))
    weights = {name: one.detach().clone() for name, one in live.named_parameters()}
    name = next(iter(weights))
    with pytest.raises(ModelError, match="are not those of"):
        export(
            tmp_path / "start", live, {key: one for key, one in weights.items() if key != name}, tmp_path / "out", ""
        )
    weights[name] += 1
    with pytest.raises(ModelError, match=f"float32 weights of {name}"):
        export(tmp_path / "start", live, weights, tmp_path / "out", "")
    assert not (tmp_path / "out").exists()
