"""What a run leaves: a folder that plain transformers, our encoders and sentence-transformers read alike."""

import json

import pytest
import torch
from safetensors import safe_open

from pyserini_rescale.errors import ConfigError, ModelError
from pyserini_rescale.model.head import find_head, load_masked_lm, stored_policy
from pyserini_rescale.model.splade import pad, plain_pool
from pyserini_rescale.train.config import resolve
from pyserini_rescale.train.export import export
from pyserini_rescale.train.prepare import calibration_texts, prepare
from tests.train.conftest import FILLERS, launch, save_backbone

TEXTS = ["The wind tunnel", "heat FLOW of a shock wave", "sparse retrieval sparse retrieval lift", "drag"]
BPE_WORDS = ["The", "the", "wind", "tunnel", "WIND"]


def vectors_of(folder, texts, length):
    """Return the vectors of texts by plain transformers (N, V)."""
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    model, tokenizer = AutoModelForMaskedLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    ids, mask = pad(tokenizer(texts, truncation=True, max_length=length)["input_ids"], tokenizer.pad_token_id)
    with torch.inference_mode():
        return plain_pool(model(input_ids=ids, attention_mask=mask).logits, mask)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model_type", "scope", "lowercase"),
    [("bert", "shared", True), ("roberta", "balanced", True), ("modernbert", "untied", True)],
)
def test_export_is_read_alike_by_all(config, tmp_path, pyserini_encode, model_type, scope, lowercase):
    """Our encoder, plain transformers and SparseEncoder, with a cased tokenizer that the text policy lower-cases."""
    from sentence_transformers import SparseEncoder

    from pyserini_rescale.encode.encoder import SpladeRescaledDocumentEncoder

    backbone = save_backbone(tmp_path / "cased", model_type, lower=False)
    path = config(
        backbone={"name": backbone}, rescale={"factor": 2, "scope": scope}, max_steps=3,
        text={"query_length": 8, "document_length": 12, "lowercase": lowercase},
    )  # fmt: skip
    launch(["--config", path])
    folder = tmp_path / "run" / "model"
    policy = stored_policy(load_masked_lm(str(folder)))
    assert (policy.k, policy.scope, policy.query_length, policy.document_length) == (2, scope, 8, 12)
    with safe_open(folder / "model.safetensors", "pt") as weights:
        tied = find_head(load_masked_lm(str(folder))).tied
        assert tied == (scope != "untied")
        sizes = [weights.get_slice(name).get_shape() for name in weights.keys()]
        assert sizes.count(list(find_head(load_masked_lm(str(folder))).weight.shape)) == (1 if tied else 2)
        assert all(weights.get_tensor(name).dtype == torch.float32 for name in weights.keys())
    ours = SpladeRescaledDocumentEncoder(str(folder), device="cpu")
    ours_vectors = torch.zeros(len(TEXTS), ours.vocabulary_size)
    head = find_head(ours.model)
    from pyserini_rescale.model.splade import splade_vectors

    tokens = ours.tokenizer(TEXTS, truncation=True, max_length=12)["input_ids"]
    ours_vectors = splade_vectors(ours.model, head, *pad(tokens, ours.tokenizer.pad_token_id))
    plain = vectors_of(folder, TEXTS, 12)
    sparse = SparseEncoder(str(folder), device="cpu", local_files_only=True)
    assert sparse.max_seq_length == 12
    theirs = sparse.encode_document(TEXTS, convert_to_sparse_tensor=False)
    torch.testing.assert_close(plain, ours_vectors, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(theirs.cpu(), plain, rtol=1e-5, atol=1e-5)
    lowered = vectors_of(folder, [text.lower() for text in TEXTS], 12)
    torch.testing.assert_close(plain, lowered, rtol=0, atol=0)
    assert plain.count_nonzero() > 0
    card = (folder / "README.md").read_text()
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["state"] == "finished"
    assert f"{record['last']['contrastive']:.4g}" in card
    assert "k = 2" in card and "retrieval was not measured" in card


@pytest.mark.parametrize("model_type", ["roberta", "modernbert"])
def test_prefix_space_of_byte_level_tokenizers_survives_in_the_folder(tmp_path, config, triples, model_type):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    from tests.model.builders import build

    build(model_type).save_pretrained(tmp_path / "backbone")
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
    PreTrainedTokenizerFast(tokenizer_object=inner, **names).save_pretrained(tmp_path / "backbone")
    path = config(
        backbone={"name": str(tmp_path / "backbone")}, rescale={"factor": None, "scope": None},
        text={"query_length": 8, "document_length": 12, "lowercase": True, "prefix_space": True},
    )  # fmt: skip
    prepare(resolve(str(path)), [], tmp_path / "start")
    before, after = (AutoTokenizer.from_pretrained(tmp_path / name) for name in ("backbone", "start"))
    assert after("BC")["input_ids"] == before(" bc")["input_ids"] != before("BC")["input_ids"]
    assert after.model_max_length == 12


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
    with pytest.raises(Exception, match="fewer than two different pairs"):
        calibration_texts(rows(1) * 5)


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
