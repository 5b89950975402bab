"""Encode, index, search, explain as typed, on a small random model: against dot products, and scales that do not fit."""

import json
import os
from pathlib import Path

import pytest

from pyserini_rescale.encode.marker import marker, write_index_marker
from pyserini_rescale.encode.quantize import FIXED
from pyserini_rescale.errors import DataError
from pyserini_rescale.indexing import ask_index

from .conftest import Done, index, read_run, run_module

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


def ours(*arguments: object) -> Done:
    return run_module(
        "pyserini_rescale", *arguments, environ={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    )


def read(folder: Path) -> dict[str, dict[str, int]]:
    lines = (line for path in sorted((folder / "vectors").iterdir()) for line in path.read_text().splitlines())
    return {record["id"]: record["vector"] for record in map(json.loads, lines)}


@pytest.fixture(scope="module")
def chain(tmp_path_factory, corpus, model, topics) -> Path:
    """A folder with encoded/, index/ and topics.json of x100, and the same by the model's own scale in plain*."""
    folder = tmp_path_factory.mktemp("chain")
    for name, more in (("plain-", ()), ("", ("--quantizer", "x100"))):
        for words in (
            (
                "encode",
                "--corpus",
                corpus,
                "--model",
                model,
                "--output",
                folder / f"{name}encoded",
                "--device",
                "cpu",
                *more,
            ),
            (
                "encode",
                "topics",
                topics,
                "--like",
                folder / f"{name}encoded",
                "--output",
                folder / f"{name}topics.json",
            ),
            ("index", folder / f"{name}encoded", "--index", folder / f"{name}index"),
        ):
            done = ours(*words)
            assert done.status == 0, done.err
    return folder


def search(folder: Path, index_name: str, topics: Path, *more: object) -> Done:
    return run_module(
        "pyserini.search.lucene", "--impact", "--index", folder / index_name, "--topics", topics, "--hits", 100,
        "--output", folder / "run.txt", *more,
    )  # fmt: skip


def test_vectors_are_those_of_pyserinis_command(chain, vectors):
    lines = [json.loads(line) for line in (vectors / "embeddings.jsonl").read_text().splitlines()]
    assert read(chain / "plain-encoded") == {line["id"]: line["vector"] for line in lines}


def test_topics_without_an_encoder_give_the_exact_dot_product(chain):
    done = search(chain, "index", chain / "topics.json")
    assert done.status == 0 and "does not say" not in done.err, done.err
    documents, run = read(chain / "encoded"), read_run(chain / "run.txt")
    for name, topic in json.loads((chain / "topics.json").read_text()).items():
        words = topic["title"].split()
        scores = {docid: sum(vector.get(word, 0) for word in words) for docid, vector in documents.items()}
        assert run.get(name, {}) == {docid: score for docid, score in scores.items() if score}


def test_the_encoder_and_its_topics_find_the_same(chain, model, topics):
    done = search(chain, "plain-index", topics, "--encoder", f"splade-rescaled:{model}")
    assert done.status == 0 and "does not say" not in done.err, done.err
    by_encoder = read_run(chain / "run.txt")
    assert search(chain, "plain-index", chain / "plain-topics.json").status == 0
    assert read_run(chain / "run.txt") == by_encoder


def test_another_scale_is_refused_in_one_line_by_encoder_and_by_topics(chain, model, topics):
    (chain / "run.txt").unlink(missing_ok=True)
    for done in (
        search(chain, "index", topics, "--encoder", f"splade-rescaled:{model}"),
        search(chain, "index", chain / "plain-topics.json"),
    ):
        errors = done.error_lines()
        assert (
            done.status == 2 and len(errors) == 1 and "were made by 100/1" in errors[0] and "Traceback" not in done.err
        ), done.err
        assert not (chain / "run.txt").exists()


def test_an_unmarked_index_is_searched_with_one_warning(chain, vectors, model, topics, tmp_path):
    assert index(vectors, tmp_path / "index").status == 0
    done = search(tmp_path, "index", topics, "--encoder", f"splade-rescaled:{model}")
    assert done.status == 0 and done.err.count("does not say by which scale") == 1, done.err


def test_index_of_pyserinis_vectors_says_the_models_scale(vectors, model, tmp_path):
    done = ours("index", vectors, "--index", tmp_path / "index", "--encoder", model)
    assert done.status == 0 and "as in the vectors" in done.out, done.err
    said = json.loads((tmp_path / "index" / "splade_rescale.json").read_text())
    assert said["quantizer"]["quant_range"] == 256 and said["counts"]["documents"] == 40
    done = ours("index", vectors, "--index", tmp_path / "index", "--encoder", model)
    assert done.status == 2 and "--force replaces it" in done.err


def test_vectors_that_cannot_be_indexed_leave_nothing(chain, tmp_path):
    (tmp_path / "v").mkdir()
    (tmp_path / "v" / "a.jsonl").write_text('{"id": "a", "vector": {"x": 1}}\n{"id": "b", "vector": {"x y": 1}}\n')
    done = ours("index", tmp_path / "v", "--index", tmp_path / "index")
    assert done.status == 2 and "a.jsonl line 2" in done.err and not (tmp_path / "index").exists()
    (tmp_path / "v" / "a.jsonl").write_text('{"id": "a", "vector": {"x": 1}}\n')
    (tmp_path / "v" / "notes.txt").write_text("x")
    done = ours("index", tmp_path / "v", "--index", tmp_path / "index")
    assert done.status == 2 and "holds notes.txt" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["v"]


def test_gzipped_parts_are_indexed(chain, corpus, model, tmp_path):
    words = ("--corpus", corpus, "--model", model, "--output", tmp_path / "out", "--device", "cpu", "--gzip")
    assert ours("encode", *words).status == 0
    done = ours("index", tmp_path / "out", "--index", tmp_path / "index")
    assert done.status == 0, done.err
    counts = [
        json.loads((folder / "splade_rescale.json").read_text())["counts"]
        for folder in (tmp_path / "index", chain / "plain-index")
    ]
    assert counts[0] == counts[1]


def test_explain_out_of_an_index(chain, model):
    name, vector = next((name, vector) for name, vector in read(chain / "encoded").items() if len(vector) > 3)
    done = ours(
        "explain",
        "--encoder",
        model,
        "--query",
        "wind tunnel heat",
        "--index",
        chain / "index",
        "--docid",
        name,
        "--json",
    )
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert found["document"]["terms"] == len(vector)
    assert all(line["document"] == vector[line["term"]] for line in found["shared"])
    run = search(chain, "index", chain / "topics.json")
    assert run.status == 0
    done = ours(
        "explain", "--encoder", model, "--query", "wind tunnel", "--index", chain / "index", "--docid", name, "--json"
    )
    assert json.loads(done.out)["score"] == read_run(chain / "run.txt").get("q1", {}).get(
        name, 0
    )  # q1 is "wind tunnel"
    done = ours("explain", "--encoder", model, "--query", "x", "--index", chain / "index", "--docid", "none")
    assert done.status == 2 and "has no document 'none'" in done.err


def test_a_folder_that_changed_after_java_was_started(chain, monkeypatch):
    found = ask_index(chain / "index")
    monkeypatch.chdir(chain)
    assert ask_index(Path("index")) == found


def test_an_index_of_a_newer_lucene_names_both_versions(tmp_path):
    header = (
        (0x3FD76C17).to_bytes(4, "big") + b"\x08segments" + (99).to_bytes(4, "big")
    )  # what each file of an index begins with
    (tmp_path / "segments_1").write_bytes(header + bytes(100))
    write_index_marker(tmp_path, {**marker(FIXED["pyserini"]), "made_with": {"pyserini": "99.0"}})
    with pytest.raises(DataError, match=r"by Pyserini [0-9.]+; it was made with 99\.0\. .*[Vv]ersion") as caught:
        ask_index(tmp_path)
    assert "\n" not in str(caught.value)
