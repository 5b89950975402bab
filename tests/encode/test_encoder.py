"""The encoder classes: against an independent reference, against Pyserini's own classes, and their options."""

import json
import shutil
import threading

import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

from pyserini_rescale.encode import base
from pyserini_rescale.errors import ConfigError, DataError, ModelError
from pyserini_rescale.model import splade
from pyserini_rescale.model.policy import KEY, Policy
from tests.encode.conftest import write_model
from tests.model.builders import build, make_word_tokenizer

pytestmark = pytest.mark.jvm

TEXTS = [
    "heat flow of a wave",
    "gas",
    "the lift the drag the shock",
    "wing plate wind tunnel pressure cone jet layer a of the",
]
TITLES = ["wind", "sparse retrieval", "the cone", "a"]


def reference(folder, text, length, special=True, scale=(5, 256)):
    """Term -> impact of one text, step by step in float64."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForMaskedLM.from_pretrained(folder).eval()
    arguments = text if isinstance(text, tuple) else (text,)
    ids = tokenizer(*arguments, truncation=True, max_length=length)["input_ids"]
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([ids])).logits[0].double().numpy()
    weights = np.log1p(np.maximum(logits, 0)).max(axis=0)
    words = {number: token for token, number in tokenizer.get_vocab().items()}
    found = {}
    for number, weight in enumerate(weights):
        if special or number not in tokenizer.all_special_ids:
            found[words.get(number, f"[id:{number}]")] = round(weight / scale[0] * scale[1])
    return {term: impact for term, impact in found.items() if impact}


def without_zeros(vector):
    return {term: impact for term, impact in vector.items() if impact}


def with_policy(folder, target, **values):
    """Copy a model and give it a policy."""
    shutil.copytree(folder, target)
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, KEY: Policy(**values).to_dict()}))
    return str(target)


# ---- Vectors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert"])
def test_documents_and_queries_equal_the_reference(encoder, request, family):
    folder = request.getfixturevalue(family)
    documents = encoder.SpladeRescaledDocumentEncoder(folder, device="cpu").encode(TEXTS, max_length=9)
    queries = encoder.SpladeRescaledQueryEncoder(f"splade-rescaled:{folder}")
    for text, vector in zip(TEXTS, documents, strict=True):
        want = reference(folder, text, 9)
        assert 0 < len(want) < 100
        assert vector == want == queries.encode(text, max_length=9)
        assert all(type(term) is str and type(impact) is int and impact > 0 for term, impact in vector.items())


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_order_and_vectors_do_not_depend_on_the_company(encoder, bert, batch_size, monkeypatch):
    monkeypatch.setattr(base, "_TOKENS_CPU", 30)
    texts = [" ".join(TEXTS[number % 4].split()[: 1 + number % 7]) for number in range(25)]
    one = encoder.SpladeRescaledDocumentEncoder(bert, device="cpu", batch_size=batch_size)
    assert one.encode(texts) == [one.encode([text])[0] for text in texts]


@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.parametrize("add_sep", [False, True])
@pytest.mark.parametrize("prefix", [None, "drag"])
@pytest.mark.parametrize("titles", [None, TITLES])
def test_untouched_models_give_pyserinis_integers(encoder, pyserini_encode, request, family, add_sep, prefix, titles):
    folder = request.getfixturevalue(family)
    options = {"titles": titles, "max_length": 10, "add_sep": add_sep, "fp16": False}
    theirs = pyserini_encode.SpladeDocumentEncoder(folder, device="cpu", prefix=prefix).encode(TEXTS, **options)
    ours = encoder.SpladeRescaledDocumentEncoder(folder, device="cpu", prefix=prefix).encode(TEXTS, **options)
    assert ours == [without_zeros(vector) for vector in theirs] and all(ours)


def test_untouched_models_give_pyserinis_integers_for_queries(encoder, pyserini_encode, bert):
    theirs, ours = pyserini_encode.SpladeQueryEncoder(bert), encoder.SpladeRescaledQueryEncoder(bert)
    for text in [*TEXTS, "", "unheard of"]:
        assert ours.encode(text) == without_zeros(theirs.encode(text))


def test_a_trained_model_on_real_texts(encoder, pyserini_encode, splade_tiny, scifact, tmp_path):
    from safetensors.torch import load_file

    shutil.copytree(splade_tiny, tmp_path / "model", copy_function=shutil.copyfile)
    torch.save(load_file(tmp_path / "model" / "model.safetensors"), tmp_path / "model" / "pytorch_model.bin")
    folder = str(tmp_path / "model")
    texts, titles = [line["text"] for line in scifact], [line["title"] for line in scifact]
    theirs = pyserini_encode.SpladeDocumentEncoder(folder, device="cpu").encode(texts, titles=titles, max_length=256)
    ours = encoder.SpladeRescaledDocumentEncoder(splade_tiny).encode(texts, titles=titles, max_length=256)
    differences = [
        [
            abs(their.get(term, 0) - our.get(term, 0))
            for term in {*their, *our}
            if their.get(term, 0) != our.get(term, 0)
        ]
        for their, our in zip(theirs, ours, strict=True)
    ]
    assert sum(not found for found in differences) >= 23 and all(sum(found) <= 1 for found in differences)
    assert 200 < np.mean([len(vector) for vector in ours]) < 300


def test_a_screened_head_gives_the_same_impacts(encoder, splade_tiny, scifact, monkeypatch):
    monkeypatch.setattr(splade, "_SCREEN_AFTER", 1000)
    one, plain = (encoder.SpladeRescaledDocumentEncoder(splade_tiny, device="cpu") for _ in range(2))
    plain._screened = None
    texts, titles = [line["text"] for line in scifact], [line["title"] for line in scifact]
    assert one.encode(texts, titles=titles, max_length=256) == plain.encode(texts, titles=titles, max_length=256)
    assert one._screened._screen is not None


# ---- Fields ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nothing", [None, ""])
def test_empty_fields_are_left_out(encoder, bert, nothing):
    one = encoder.SpladeRescaledDocumentEncoder(bert)
    text, title = "heat flow", "wind tunnel"
    for add_sep in (False, True):
        assert one.encode([text], titles=[nothing], add_sep=add_sep) == one.encode([text])
        assert one.encode([nothing], titles=[title], add_sep=add_sep) == one.encode([title])
        both, left, right, none = one.encode(
            [text, nothing, text, nothing], titles=[title, title, nothing, nothing], add_sep=add_sep
        )
        assert both == one.encode([text], titles=[title], add_sep=add_sep)[0]
        assert left == one.encode([title])[0] and right == one.encode([text])[0] and none == one.encode([""])[0]
    assert both == reference(bert, (title, text), 32)


def test_prefix_goes_before_the_text(encoder, bert):
    one = encoder.SpladeRescaledDocumentEncoder(bert, prefix="gas")
    plain = encoder.SpladeRescaledDocumentEncoder(bert)
    assert one.encode(["heat", None], titles=["wing", "wing"]) == plain.encode(["wing gas heat", "wing gas"])


def test_one_text_is_a_batch_of_one(encoder, bert):
    one = encoder.SpladeRescaledDocumentEncoder(bert)
    assert one.encode("heat flow") == one.encode(["heat flow"])
    assert one.encode([]) == []


def test_bad_input_is_refused_in_one_line(encoder, bert):
    one = encoder.SpladeRescaledDocumentEncoder(bert)
    with pytest.raises(ConfigError, match="fields authors, urls cannot be encoded"):
        one.encode(["x"], urls=["u"], authors=["a"])
    with pytest.raises(DataError, match="1 titles for 2 texts"):
        one.encode(["x", "y"], titles=["t"])
    with pytest.raises(DataError, match="document 1 of the batch has a int"):
        one.encode(["x", 3])
    with pytest.raises(DataError, match="not a NoneType"):
        encoder.SpladeRescaledQueryEncoder(bert).encode(None)
    with pytest.raises(ConfigError, match="batch size 0"):
        encoder.SpladeRescaledDocumentEncoder(bert, batch_size=0)


# ---- Length ----------------------------------------------------------------------------------------------------------


def test_a_typed_length_wins_over_the_policy_and_a_default_does_not(encoder, bert, tmp_path):
    folder = with_policy(bert, tmp_path / "model", document_length=7, query_length=5)
    documents, queries = encoder.SpladeRescaledDocumentEncoder(folder), encoder.SpladeRescaledQueryEncoder(folder)
    text = TEXTS[3]
    by_length = {length: reference(bert, text, length) for length in (5, 7, 9)}
    assert by_length[5] != by_length[7] != by_length[9]
    assert documents.encode([text]) == documents.encode([text], max_length=base.UntypedInt(9)) == [by_length[7]]
    assert documents.encode([text], max_length=9) == [by_length[9]]
    assert queries.encode(text) == queries.encode(text, max_length=base.UntypedInt(9)) == by_length[5]
    assert queries.encode(text, max_length=9) == by_length[9]
    plain = encoder.SpladeRescaledDocumentEncoder(bert)
    assert plain.encode([text], max_length=base.UntypedInt(9)) == [by_length[9]]


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_no_text_is_longer_than_the_model(encoder, request, family):
    folder = request.getfixturevalue(family)  # both take 32 tokens, RoBERTa has 34 positions
    text = " ".join(TEXTS) + " " + " ".join(reversed(TEXTS))
    one, query = encoder.SpladeRescaledDocumentEncoder(folder), encoder.SpladeRescaledQueryEncoder(folder)
    assert one.encode([text]) == one.encode([text], max_length=32) == [query.encode(text)]
    for length in (33, 512):
        with pytest.raises(ConfigError, match=f"max length {length} is beyond the 32 positions of"):
            one.encode([text], max_length=length)
        with pytest.raises(ConfigError, match="beyond the 32 positions"):
            query.encode(text, max_length=length)


def test_a_length_without_room_for_text(encoder, bert):
    one = encoder.SpladeRescaledDocumentEncoder(bert)
    for length in (-1, 0, 2):
        with pytest.raises(ConfigError, match="no room for text beside 2 special tokens"):
            one.encode(["heat"], max_length=length)
    with pytest.raises(ConfigError, match="beside 3 special tokens"):
        one.encode(["heat"], titles=["gas"], add_sep=True, max_length=3)
    assert one.encode(["heat flow"], max_length=3) == one.encode(["heat"])


# ---- Policy ----------------------------------------------------------------------------------------------------------


def test_special_tokens_and_scale_come_from_the_policy(encoder, bert, tmp_path):
    folder = with_policy(bert, tmp_path / "model", special_tokens=False, weight_range=3.0, quant_range=100)
    want = reference(bert, TEXTS[0], 32, special=False, scale=(3, 100))
    assert any(term.startswith("[") and not term.startswith("[id:") for term in reference(bert, TEXTS[0], 32))
    assert encoder.SpladeRescaledDocumentEncoder(folder).encode(TEXTS[:1]) == [want]
    assert encoder.SpladeRescaledQueryEncoder(folder).encode(TEXTS[0]) == want


def test_empty_vectors_are_counted(encoder, tmp_path):
    """A bias of -9 leaves nothing; so does a text without tokens, which only a tokenizer without special ones makes."""
    model = build("bert")
    with torch.no_grad():
        model.get_output_embeddings().bias.fill_(-9)
    model.save_pretrained(tmp_path)
    make_word_tokenizer(model, specials=False).save_pretrained(tmp_path)
    one = encoder.SpladeRescaledDocumentEncoder(str(tmp_path))
    assert one.encode(["heat", "", "gas flow"]) == [{}, {}, {}] and one.empty_count == 3
    one.encode(["heat"])
    assert one.empty_count == 4
    query = encoder.SpladeRescaledQueryEncoder(str(tmp_path))
    assert query.encode("") == query.encode("gas") == {} and query.empty_count == 2


# ---- Terms -----------------------------------------------------------------------------------------------------------


def test_the_dot_product_is_exact_with_awkward_tokens_and_padded_vocabularies(encoder, tmp_path):
    """103 ids, 27 of the tokenizer, two of them with white space: every active id has a term, and it is its own."""
    tokenizer = make_word_tokenizer(build("bert"))
    tokenizer.add_tokens(["   ", "two words"])
    folder = write_model(tmp_path, tokenizer=tokenizer)
    one, query = encoder.SpladeRescaledDocumentEncoder(folder), encoder.SpladeRescaledQueryEncoder(folder)
    assert one.vocabulary_size == len(set(one.terms)) == 103
    document, asked = one.encode(["heat   flow two words"])[0], query.encode("two words gas")
    assert any(term.startswith("[id:2") for term in document) and not any(term.split() != [term] for term in document)
    vectors = []
    for text in ("heat   flow two words", "two words gas"):
        ids = tokenizer(text)["input_ids"]
        with torch.inference_mode():
            logits = one.model(input_ids=torch.tensor([ids])).logits[0].double().numpy()
        vectors.append(np.rint(np.log1p(np.maximum(logits, 0)).max(axis=0) * 256 / 5))
    assert sum(asked[term] * document.get(term, 0) for term in asked) == vectors[0] @ vectors[1]


def test_a_tokenizer_of_another_model_is_refused(encoder, bert, tmp_path):
    tokenizer = make_word_tokenizer(build("bert"), words=[f"word{number}" for number in range(200)])
    tokenizer.save_pretrained(tmp_path)
    one = encoder.SpladeRescaledDocumentEncoder(bert, tokenizer_name=str(tmp_path))
    assert one.encode(["word3"])
    with pytest.raises(ModelError, match="beyond the 103 entries"):
        one.encode(["word150"])


# ---- Weights, devices -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("poison", [torch.nan, torch.inf])
def test_weights_that_are_no_numbers_are_refused(encoder, bert, poison):
    one = encoder.SpladeRescaledDocumentEncoder(bert)
    with torch.no_grad():
        one.model.get_output_embeddings().bias[7] = poison
    with pytest.raises(ModelError, match="NaN, infinite or negative"):
        one.encode(["heat"])


def test_devices(encoder, bert, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert base.choose_device("cpu") == torch.device("cpu")
    assert base.choose_device(base.UntypedStr("cuda:0")) == torch.device("cpu")
    assert (
        encoder.SpladeRescaledDocumentEncoder(bert).device == encoder.SpladeRescaledQueryEncoder(bert).device == "cpu"
    )
    for name in ("cuda", "cuda:0"):
        with pytest.raises(ConfigError, match="is not available"):
            encoder.SpladeRescaledDocumentEncoder(bert, device=name)
    for name in ("gpu", "cuda:x", "", "meta", "xpu"):
        with pytest.raises(ConfigError, match="unknown device"):
            encoder.SpladeRescaledQueryEncoder(bert, device=name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert base.choose_device("cuda:1") == torch.device("cuda", 1)
    assert base.choose_device(base.UntypedStr("cuda:0")) == torch.device("cuda", 0)
    with pytest.raises(ConfigError, match="sees 2 CUDA devices"):
        base.choose_device("cuda:2")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.gpu
@pytest.mark.parametrize("fp16", [False, True])
def test_cuda_gives_nearly_the_same(encoder, bert, fp16):
    cpu = encoder.SpladeRescaledDocumentEncoder(bert, device="cpu").encode(TEXTS)
    gpu = encoder.SpladeRescaledDocumentEncoder(bert, device="cuda").encode(TEXTS, fp16=fp16)
    for one, other in zip(cpu, gpu, strict=True):
        assert all(abs(one.get(term, 0) - other.get(term, 0)) <= (3 if fp16 else 1) for term in {*one, *other})


def test_half_precision_is_refused_without_cuda(encoder, bert):
    one = encoder.SpladeRescaledDocumentEncoder(bert, device="cpu")
    with pytest.raises(ConfigError, match="fp16 needs a CUDA device"):
        one.encode(["heat"], fp16=True)


# ---- Tokenizing beside the model -------------------------------------------------------------------------------------


@pytest.fixture
def overlapped(encoder, monkeypatch):
    """Tokenize in a thread on a CPU too, two texts at a time with a batch size of 1; gives the texts of each part."""
    monkeypatch.setattr(base, "_OVERLAPPED", ("cpu",))
    monkeypatch.setattr(base, "_BATCHES_AT_ONCE", 2)
    parts = []
    tokenize = encoder.SpladeRescaledDocumentEncoder._sequences

    def watched(self, inputs, length):
        parts.append((threading.current_thread() is threading.main_thread(), len(inputs)))
        return tokenize(self, inputs, length)

    monkeypatch.setattr(encoder.SpladeRescaledDocumentEncoder, "_sequences", watched)
    return parts


@pytest.mark.parametrize("add_sep", [False, True])
def test_tokenizing_in_a_thread_gives_the_same(encoder, bert, overlapped, add_sep):
    one = encoder.SpladeRescaledDocumentEncoder(bert, device="cpu", batch_size=1)
    texts = [" ".join(TEXTS[number % 4].split()[: 1 + number % 7]) for number in range(7)]
    titles = ["wind" if number % 3 else "" for number in range(7)]
    found = one.encode(texts, titles=titles, add_sep=add_sep)
    assert overlapped == [(False, 2), (False, 2), (False, 2), (False, 1)]
    assert found == [
        one.encode([text], titles=[title], add_sep=add_sep)[0] for text, title in zip(texts, titles, strict=True)
    ]
    assert set(overlapped[4:]) == {(True, 1)}  # not for a handful of texts
    overlapped.clear()
    assert one.encode(texts[:2]) == [one.encode([text])[0] for text in texts[:2]] and one.encode([]) == []
    assert all(main for main, _ in overlapped)


def test_a_cpu_does_not_tokenize_in_a_thread(encoder, bert, overlapped, monkeypatch):
    monkeypatch.setattr(base, "_OVERLAPPED", ("cuda", "mps"))
    encoder.SpladeRescaledDocumentEncoder(bert, device="cpu", batch_size=1).encode(TEXTS)
    assert overlapped == [(True, 4)]


def test_errors_of_either_thread_reach_the_caller(encoder, bert, overlapped, monkeypatch):
    one = encoder.SpladeRescaledDocumentEncoder(bert, device="cpu", batch_size=1)
    tokenize = one._token_ids
    monkeypatch.setattr(one, "_token_ids", lambda texts, *rest: 1 / 0 if "bad" in texts else tokenize(texts, *rest))
    for place in range(5):
        texts = ["heat"] * 5
        texts[place] = "bad"
        with pytest.raises(ZeroDivisionError):
            one.encode(texts)
    monkeypatch.setattr(one, "_token_ids", tokenize)
    with torch.no_grad():
        one.model.get_output_embeddings().bias[7] = torch.nan
    with pytest.raises(ModelError, match="NaN, infinite or negative"):
        one.encode(["heat"] * 9)
    assert not any(thread.name.startswith("tokenizer") for thread in threading.enumerate())


# ---- A head in bfloat16 ----------------------------------------------------------------------------------------------


def test_a_bf16_head_is_close_and_off_by_default(encoder, bert, monkeypatch):
    monkeypatch.delenv(base.HEAD_SWITCH, raising=False)
    plain = encoder.SpladeRescaledDocumentEncoder(bert, device="cpu")
    want = plain.encode(TEXTS)
    rounded = encoder.SpladeRescaledDocumentEncoder(bert, device="cpu", head="bf16-anyway")
    assert rounded.model.dtype == torch.float32  # the head's product alone
    found = rounded.encode(TEXTS)
    assert want != found
    for one, other in zip(want, found, strict=True):
        assert all(abs(one.get(term, 0) - other.get(term, 0)) <= 2 for term in {*one, *other})
    query = encoder.SpladeRescaledQueryEncoder(bert, head="bf16-anyway")
    assert query.encode(TEXTS[2]) == rounded.encode(TEXTS[2:3])[0]
    with pytest.raises(ConfigError, match="fp16 and a bf16 head"):
        monkeypatch.setattr(rounded, "device", "cuda:0")
        rounded.encode(TEXTS, fp16=True)


def test_the_environment_switches_the_head_and_a_keyword_wins(encoder, bert, monkeypatch):
    for value, kind in (("bf16-anyway", torch.bfloat16), ("fp32", None), ("", None)):
        monkeypatch.setenv(base.HEAD_SWITCH, value)
        assert base.choose_head(None, torch.device("cpu")) == kind
    monkeypatch.setenv(base.HEAD_SWITCH, "bf16-anyway")
    plain = encoder.SpladeRescaledDocumentEncoder(bert, device="cpu", head="fp32").encode(TEXTS)
    assert plain != encoder.SpladeRescaledDocumentEncoder(bert, device="cpu").encode(TEXTS)
    monkeypatch.setenv(base.HEAD_SWITCH, "bfloat16")
    with pytest.raises(ConfigError, match="PYSERINI_RESCALE_HEAD=bfloat16 is not known: use fp32, bf16 or bf16-anyway"):
        encoder.SpladeRescaledQueryEncoder(bert)
    with pytest.raises(ConfigError, match="head 'int8' is not known"):
        encoder.SpladeRescaledQueryEncoder(bert, head="int8")


def test_a_bf16_head_is_refused_where_it_is_emulated(encoder, bert, monkeypatch):
    monkeypatch.setattr(base, "has_bf16", lambda device: False)
    with pytest.raises(ConfigError, match="head 'bf16': no bf16 instructions are found on cpu"):
        encoder.SpladeRescaledDocumentEncoder(bert, device="cpu", head="bf16")
    monkeypatch.setenv(base.HEAD_SWITCH, "bf16")
    with pytest.raises(ConfigError, match="PYSERINI_RESCALE_HEAD=bf16: no bf16 .* or use bf16-anyway"):
        encoder.SpladeRescaledQueryEncoder(bert)
    monkeypatch.setattr(base, "has_bf16", lambda device: True)
    assert base.choose_head(None, torch.device("cpu")) == torch.bfloat16


@pytest.mark.parametrize(
    ("line", "has"),
    [
        ("flags\t\t: fpu avx2 fma", False),
        ("flags\t\t: avx512f avx512_bf16", True),
        ("flags\t\t: amx_tile amx_bf16", True),
        ("Features\t: asimd i8mm bf16", True),
        ("model name\t: bf16", False),
    ],
)
def test_bf16_instructions_are_read_from_cpuinfo(encoder, tmp_path, line, has):
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{line}\n")
    assert base.has_bf16(torch.device("cpu"), tmp_path / "cpuinfo") is has
    assert base.has_bf16(torch.device("cpu"), tmp_path / "absent") is False


# ---- Loading ---------------------------------------------------------------------------------------------------------


def test_models_and_tokenizers_that_are_missing(encoder, bert, tmp_path):
    for make in (encoder.SpladeRescaledDocumentEncoder, encoder.SpladeRescaledQueryEncoder):
        with pytest.raises(ModelError, match="no model folder"):
            make(str(tmp_path / "absent"))
        with pytest.raises(ModelError):
            make(bert, tokenizer_name=str(tmp_path))
    build("bert").save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="tokenizer"):
        encoder.SpladeRescaledDocumentEncoder(str(tmp_path))


def test_they_are_pyserinis_encoders(encoder, pyserini_encode, bert):
    one, query = encoder.SpladeRescaledDocumentEncoder(bert), encoder.SpladeRescaledQueryEncoder(bert)
    assert isinstance(one, pyserini_encode.DocumentEncoder) and isinstance(query, pyserini_encode.QueryEncoder)
    assert query.has_model
    assert one.model.config.model_type == "bert" and one.tokenizer("heat")["input_ids"]
    assert not one.model.training and not any(hasattr(parameter.grad, "shape") for parameter in one.model.parameters())
