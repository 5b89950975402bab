"""Mining: which negatives are drawn, what is counted, what is written, and Anserini's part on a small collection."""

import dataclasses
import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyserini_rescale.cli import main
from pyserini_rescale.collections import Collection, Document, Judgement, Query, open_collection, write_pyserini_form
from pyserini_rescale.errors import ConfigError, DataError, StageError
from pyserini_rescale.train import mine as mining
from pyserini_rescale.train.mine import Material, Options, manifest_of, mine, pairs_only, read, triples

OPTIONS = Options(source="", output=Path("t.jsonl"))
DOCUMENTS = {"d1": "one", "d2": "two", "d3": "three", "q1": "its own", "copy": "one", "empty": " ", "d4": "four"}
HITS = ["d1", "q1", "d3", "copy", "d2", "d4"]


def drawn(hits, relevant=("d1",), documents=DOCUMENTS, **changes) -> tuple[list[tuple[str, str]], Counter]:
    """Return (positive, negative) of every row drawn for query q1, and the counts."""
    counts: Counter[str] = Counter()
    material = Material(documents, {"q1": "query"}, {"q1": relevant})
    options = dataclasses.replace(OPTIONS, **changes)
    rows = list(triples(material, [("q1", hits)], options, counts))
    assert all(row["query"] == "query" and row["query_id"] == "q1" for row in rows)
    assert all(documents[row[f"{kind}_id"]] == row[kind] for row in rows for kind in ("positive", "negative"))
    return [(row["positive_id"], row["negative_id"]) for row in rows], +counts


# Drawing, worked by hand


def test_what_cannot_be_a_negative():
    """Of the hits, d1 is relevant, q1 the query's own document, copy a relevant text: d3, d2 and d4 are left."""
    found, counts = drawn(HITS, negatives=5)
    assert sorted(found) == [("d1", "d2"), ("d1", "d3"), ("d1", "d4")]
    assert counts == {"pairs": 1, "triples": 3, "pairs_with_fewer_negatives": 1}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"depth": 3}, ["d3"]),
        ({"skip_top": 5}, ["d4"]),
        ({"skip_top": 2, "depth": 4}, ["d3"]),
        ({"skip_top": 4, "depth": 5}, ["d2"]),
    ],
)
def test_depth_and_skipped_top_count_hits(changes, expected):
    assert [negative for _, negative in drawn(HITS, **changes)[0]] == expected


def test_every_relevant_document_makes_a_pair():
    found, counts = drawn(["d1", "d3", "d2"], relevant=("d1", "d2"))
    assert found == [("d1", "d3"), ("d2", "d3")] and counts == {"pairs": 2, "triples": 2}


@pytest.mark.parametrize("hits", [[], ["d1", "q1", "copy"]])
def test_random_documents_where_no_hit_can_serve(hits):
    found, counts = drawn(hits, negatives=2)
    assert len({negative for _, negative in found}) == 2 and {negative for _, negative in found} <= {"d2", "d3", "d4"}
    assert counts == {"pairs": 1, "triples": 2, "queries_without_hits": 1}
    found, counts = drawn(hits, negatives=7)
    assert sorted(negative for _, negative in found) == ["d2", "d3", "d4"] and counts["pairs_with_fewer_negatives"] == 1


def test_a_pair_without_any_negative_is_counted():
    found, counts = drawn([], relevant=("d1", "d2"), documents={"d1": "one", "d2": "two", "empty": ""})
    assert found == [] and counts == {"pairs": 2, "queries_without_hits": 1, "pairs_without_negative": 2}


def test_draws_are_pinned():
    """The same on every Python; another seed draws others."""
    hits = [f"h{number}" for number in range(50)]
    documents = {"d1": "one"} | {name: name for name in hits}
    assert drawn(hits, documents=documents, negatives=4)[0] == [
        ("d1", "h9"),
        ("d1", "h38"),
        ("d1", "h8"),
        ("d1", "h36"),
    ]
    assert drawn(hits, documents=documents, negatives=4, seed=1)[0] != drawn(hits, documents=documents, negatives=4)[0]


IDS = st.sampled_from([f"d{number}" for number in range(9)] + ["q1"])


@settings(max_examples=200, deadline=None)
@given(
    hits=st.lists(IDS, unique=True),
    relevant=st.lists(IDS, unique=True, min_size=1, max_size=4),
    depth=st.integers(2, 12),
    skip=st.integers(0, 1),
    negatives=st.integers(1, 4),
    seed=st.integers(0, 5),
)
def test_draws_keep_the_rules(hits, relevant, depth, skip, negatives, seed):
    documents = {f"d{number}": f"text {number // 2}" for number in range(9)} | {"q1": "own"}  # d0 and d1 are alike
    changes = {"depth": depth, "skip_top": skip, "negatives": negatives, "seed": seed}
    found, counts = drawn(hits, relevant, documents, **changes)
    texts = {documents[name] for name in relevant}
    allowed = {name for name in documents if name not in {*relevant, "q1"} and documents[name] not in texts}
    usable = allowed & set(hits[skip:depth]) or allowed
    assert len(set(found)) == len(found) == counts["triples"] == len(relevant) * min(negatives, len(usable))
    assert {negative for _, negative in found} <= usable
    assert counts["pairs"] == len(relevant)
    assert drawn(hits, relevant, documents, **changes)[0] == found


def test_a_draw_does_not_depend_on_other_queries():
    documents = {f"d{number}": f"text {number}" for number in range(30)}
    material = Material(documents, {"a": "x", "b": "y"}, {"a": ["d0"], "b": ["d1"]})
    hits = [("a", list(documents)), ("b", list(documents))]
    both = list(triples(material, hits, OPTIONS, Counter()))
    assert both[1:] == list(triples(material, hits[1:], OPTIONS, Counter()))


# The collection


def collection(documents=(), queries=(), judgements=()) -> Collection:
    return Collection("small", lambda: iter(documents), lambda: iter(queries), lambda: iter(judgements))


SMALL = collection(
    [Document("d1", "Title", "text"), Document("d2", "", "only text"), Document("d3", "Only", ""), Document("d4", "", " ")],
    [Query("q1", "a\tb\nc"), Query("q2", " "), Query("q4", "unjudged"), Query("q5", "five")],
    [
        Judgement("q5", "d4", 1), Judgement("q5", "gone", 1), Judgement("q1", "d1", 2), Judgement("q1", "d2", 0),
        Judgement("q1", "d3", 1), Judgement("q1", "d4", 3), Judgement("q2", "d1", 1), Judgement("q3", "d1", 1),
    ],
)  # fmt: skip


def test_reading_a_collection():
    found = read(SMALL)
    assert found.documents == {"d1": "Title text", "d2": "only text", "d3": "Only", "d4": " "}
    assert found.queries == {"q1": "a b c", "q2": "", "q5": "five"}
    assert found.relevant == {"q5": ["d4", "gone"], "q1": ["d1", "d3", "d4"], "q2": ["d1"], "q3": ["d1"]}
    assert read(SMALL, ["text"]).documents["d1"] == "text" and read(SMALL, ["title"]).documents["d1"] == "Title"


def test_what_cannot_be_trained_on_is_counted():
    counts: Counter[str] = Counter()
    assert pairs_only(read(SMALL), counts).relevant == {"q1": ["d1", "d3"]}
    assert counts == {"queries_without_text": 2, "positives_not_in_corpus": 1, "positives_empty": 2}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"judgements": [Judgement("q1", "d1", 0)]}, "judges no document relevant"),
        ({"documents": ()}, "has no documents"),
    ],
)
def test_collections_that_give_nothing(changes, message):
    parts = {
        "documents": [Document("d1", "", "x")],
        "queries": [Query("q1", "x")],
        "judgements": [Judgement("q1", "d1", 1)],
    }
    with pytest.raises(DataError, match=message):
        read(collection(**(parts | changes)))


# Options and files


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"depth": 0}, "--depth 0: 1 or more"),
        ({"negatives": 0}, "--negatives 0"),
        ({"skip_top": -1}, "--skip-top -1: 0 or more"),
        ({"skip_top": 100}, "--skip-top 100 leaves none"),
        ({"seed": -1}, "--seed -1"),
        ({"threads": 0}, "--threads 0"),
        ({"k1": float("nan")}, "--k1 nan"),
        ({"k1": -0.1}, "--k1 -0.1"),
        ({"b": 1.5}, "--b 1.5"),
        ({"b": float("nan")}, "--b nan"),
        ({"fields": ("title", "title")}, "--fields title title"),
        ({"fields": ()}, "--fields"),
        ({"output": Path("t.json")}, r"ends in \.jsonl"),
    ],
)
def test_options_that_cannot_be_used(changes, message):
    with pytest.raises(ConfigError, match=message):
        mine(dataclasses.replace(OPTIONS, **changes), print)


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.json"])
def test_files_of_others_are_kept(tmp_path, name):
    (tmp_path / name).write_text("precious")
    with pytest.raises(ConfigError, match="was not mined by us"):
        mine(dataclasses.replace(OPTIONS, output=tmp_path / "t.jsonl"), print)
    assert (tmp_path / name).read_text() == "precious"


@pytest.fixture
def indexed(monkeypatch):
    """Stands in for Anserini; counts how often it indexes."""
    calls: list[list[str]] = []

    def run(command, log):
        calls.append(command)
        folder = Path(command[command.index("--input") + 1])
        lines = [json.loads(line) for line in (folder / "documents.jsonl").read_text().splitlines()]
        index = Path(command[command.index("--index") + 1])
        index.mkdir()
        (index / "ids").write_text(" ".join(line["id"] for line in lines))

    monkeypatch.setattr(mining, "_run", run)
    return calls


def test_an_index_is_used_again_while_the_documents_are_the_same(tmp_path, indexed):
    said: list[str] = []
    work = tmp_path / "work"
    for documents, times in ((DOCUMENTS, 1), (DOCUMENTS, 1), (DOCUMENTS | {"d1": "uno"}, 2), (DOCUMENTS, 3)):
        assert mining.build_index(work, documents, 1, said.append) == 6
        assert len(indexed) == times
    assert (work / "index" / "ids").read_text() == "d1 d2 d3 q1 copy d4", "the empty document is not indexed"
    assert not (work / "documents").exists()
    (work / "index" / "ids").unlink()
    (work / "index").rmdir()
    mining.build_index(work, DOCUMENTS, 1, said.append)
    assert len(indexed) == 4


def test_an_index_that_was_not_finished_is_made_again(tmp_path, indexed, monkeypatch):
    def fail(command, log):
        Path(command[command.index("--index") + 1]).mkdir()
        raise StageError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(mining, "_run", fail)
        with pytest.raises(StageError):
            mining.build_index(tmp_path, DOCUMENTS, 1, print)
    mining.build_index(tmp_path, DOCUMENTS, 1, print)
    assert len(indexed) == 1


def test_a_work_folder_of_others_is_kept(tmp_path, indexed):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(ConfigError, match="not an index of ours"):
        mining.build_index(tmp_path, DOCUMENTS, 1, print)
    assert (tmp_path / "thesis.txt").read_text() == "precious" and not indexed


def test_a_failed_index_command_says_why(tmp_path):
    import sys

    code = "print('error: the disk is full'); print('bye'); raise SystemExit(3)"
    with pytest.raises(StageError, match=r"status 3\): the disk is full"):
        mining._run([sys.executable, "-c", code], tmp_path / "log")
    with pytest.raises(StageError, match="it printed nothing"):
        mining._run([sys.executable, "-c", "raise SystemExit(1)"], tmp_path / "log")


# The whole, with Anserini in place of which the hits are given


def beir(folder: Path, documents: list, queries: list, judgements: list) -> Path:
    (folder / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", documents), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in judgements)]
    (folder / "qrels" / "train.tsv").write_text("\n".join(lines) + "\n")
    return folder


FISH = [
    {"_id": "d1", "title": "Trout", "text": "The trout is a river fish."},
    {"_id": "d2", "title": "Salmon", "text": "The salmon is a fish of river and sea."},
    {"_id": "d3", "title": "Oak", "text": "The oak is a tree of the forest."},
    {"_id": "d4", "title": "", "text": "River fish, again: trout and salmon\u2028and their river."},
    {"_id": "d5", "title": "", "text": ""},
    {"_id": "d6", "title": "Trout", "text": "The trout is a river fish."},
]
QUESTIONS = [{"_id": "q1", "text": "river fish\ttrout"}, {"_id": "q2", "text": "of the"}, {"_id": "q3", "text": ""}]
JUDGED = [("q1", "d1", 1), ("q1", "d5", 1), ("q1", "d3", 0), ("q2", "d3", 2), ("q3", "d1", 1), ("q2", "gone", 1)]


@pytest.fixture
def fish(tmp_path) -> Path:
    return beir(tmp_path / "fish", FISH, QUESTIONS, JUDGED)


@pytest.fixture
def given_hits(indexed, monkeypatch):
    hits = {"q1": ["d1", "d6", "d4", "d2"], "q2": []}

    def search(index, size, material, options):
        yield from ((name, hits[name]) for name in material.relevant)

    monkeypatch.setattr(mining, "search", search)
    return hits


def rows_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_what_is_written(tmp_path, fish, given_hits):
    said: list[str] = []
    output = tmp_path / "new" / "t.jsonl"
    manifest = mine(dataclasses.replace(OPTIONS, source=str(fish), output=output, negatives=2), said.append)
    rows = rows_of(output)
    assert {(row["query_id"], row["positive_id"], row["negative_id"]) for row in rows[:2]} == {
        ("q1", "d1", "d4"),
        ("q1", "d1", "d2"),
    }
    assert [list(row) for row in rows] == [
        ["query", "positive", "negative", "query_id", "positive_id", "negative_id"]
    ] * 4
    assert rows[0]["query"] == "river fish trout" and rows[0]["positive"] == "Trout The trout is a river fish."
    assert {row["negative_id"] for row in rows[2:]} <= {"d1", "d2", "d4", "d6"}
    assert manifest == json.loads(manifest_of(output).read_text())
    assert manifest["sha256"] == hashlib.sha256(output.read_bytes()).hexdigest()
    assert manifest["counts"] == {
        "pairs": 2, "triples": 4, "queries_without_text": 1, "positives_not_in_corpus": 1, "positives_empty": 1,
        "queries_without_hits": 1, "pairs_with_fewer_negatives": 0, "pairs_without_negative": 0, "documents": 6,
        "queries": 2,
    }  # fmt: skip
    assert manifest["options"]["negatives"] == 2 and manifest["options"]["seed"] == 0
    assert manifest["collection"] == {"source": str(fish), "name": "fish", "split": "train"}
    assert {"pyserini", "pyserini-rescale", "python"} <= set(manifest["versions"])
    for start in ("note: 1 queries with relevant", "note: 1 relevant documents are not in", "note: 1 relevant documents are e",
                  "note: 1 queries have no hit"):  # fmt: skip
        assert sum(line.startswith(start) for line in said) == 1, start
    assert sorted(path.name for path in output.parent.iterdir()) == ["t.jsonl", "t.jsonl.json"]


def test_a_failure_leaves_the_earlier_output(tmp_path, fish, given_hits):
    options = dataclasses.replace(OPTIONS, source=str(fish), output=tmp_path / "t.jsonl")
    mine(options, print)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    given_hits["q2"] = None
    with pytest.raises(TypeError):
        mine(dataclasses.replace(options, seed=5), print)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_no_triple_at_all(tmp_path, given_hits):
    folder = beir(tmp_path / "c", FISH, QUESTIONS, [("q3", "d1", 1)])
    with pytest.raises(DataError, match="c gives no triple"):
        mine(dataclasses.replace(OPTIONS, source=str(folder), output=tmp_path / "t.jsonl"), print)
    assert not (tmp_path / "t.jsonl").exists()


# Anserini


@pytest.mark.jvm
@pytest.mark.slow
def test_command(tmp_path, capsys):
    """BM25 finds d1, d6 (a copy of d1), d4 and d2 for q1; q2 is of stop words only."""
    fish = beir(tmp_path / "fish", FISH, QUESTIONS[:2], JUDGED)  # where `collection` refuses an empty query
    words = ["--output", str(tmp_path / "a.jsonl"), "--work", str(tmp_path / "work"), "--threads", "1"]
    assert main(["train", "mine", str(fish), *words]) == 0
    assert "2 triples of 2 pairs and 2 queries" in capsys.readouterr().out
    rows = rows_of(tmp_path / "a.jsonl")
    assert [(row["query_id"], row["positive_id"]) for row in rows] == [("q1", "d1"), ("q2", "d3")]
    assert rows[0]["negative_id"] in ("d2", "d4") and rows[1]["negative_id"] in ("d1", "d2", "d4", "d6")

    # The same of the folder that `collection` writes, from the same index, and with more threads.
    write_pyserini_form(open_collection(str(fish), "train"), tmp_path / "form")
    words = ["--output", str(tmp_path / "b.jsonl"), "--work", str(tmp_path / "work"), "--threads", "3"]
    assert main(["train", "mine", str(tmp_path / "form"), *words]) == 0
    assert "taking the BM25 index" in capsys.readouterr().err
    assert (tmp_path / "b.jsonl").read_bytes() == (tmp_path / "a.jsonl").read_bytes()


@pytest.mark.jvm
@pytest.mark.slow
def test_hits_of_anserini(tmp_path):
    """Order, an unknown word, and a query of more terms than Lucene takes by default; lost documents are noticed."""
    from pyserini_rescale.plugin import patches

    patches.activate()
    documents = {"a": "river river fish", "b": "river fish fish fish", "c": "tree tree tree", "d": "river " * 5}
    mining.build_index(tmp_path, documents, 1, print)
    queries = {"fish": "fish", "none": "zebra", "long": " ".join(f"w{n}" for n in range(3000)) + " tree"}
    material = Material(documents, queries, {name: ["a"] for name in queries})
    found = dict(mining.search(tmp_path / "index", 4, material, OPTIONS))
    assert found == {"fish": ["b", "a"], "none": [], "long": ["c"]}
    assert dict(mining.search(tmp_path / "index", 4, material, dataclasses.replace(OPTIONS, depth=1)))["fish"] == ["b"]
    with pytest.raises(StageError, match="has 4 documents where 5 were given"):
        next(mining.search(tmp_path / "index", 5, material, OPTIONS))
