"""The collection reader and the vector writer that stand in for Pyserini's."""

import gzip
import json
from pathlib import Path

import pytest

from pyserini_rescale.encode import jsonl
from pyserini_rescale.errors import ConfigError, DataError

base = pytest.importorskip("pyserini.encode", reason="Pyserini is not installed").JsonlCollectionIterator
Reader = jsonl.collection_iterator(base)


def write(path: Path, *lines: object) -> str:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return str(path)


def read(path: str, fields=("title", "text"), batch=2, shard=0, shards=1, **options):
    chunks = list(Reader(path, list(fields), **options)(batch, shard, shards))
    return {name: [value for chunk in chunks for value in chunk[name]] for name in ["id", *fields]}


DOCUMENTS = [{"_id": str(n), "title": f"t{n}", "text": f" x{n} "} for n in range(37)]


def test_same_fields_as_pyserinis_own_reader(tmp_path):
    path = write(
        tmp_path / "c.jsonl",
        *DOCUMENTS,
        {"id": 99, "contents": "a title\na text\n"},
        {"docid": "e", "title": "", "text": "x"},
    )
    theirs = [dict(chunk) for chunk in base(path, ["title", "text"])(2)]
    ours = read(path)
    assert ours == {name: [value for chunk in theirs for value in chunk[name]] for name in ours}
    assert ours["id"][-2:] == ["99", "e"] and ours["title"][-1] is None


@pytest.mark.parametrize("shards", [1, 2, 3, 5, 37, 40])
def test_shards_partition_the_collection_in_order(tmp_path, shards):
    path = write(tmp_path / "c.jsonl", *DOCUMENTS)
    ids = [docid for shard in range(shards) for docid in read(path, shard=shard, shards=shards, batch=1)["id"]]
    assert ids == [document["_id"] for document in DOCUMENTS]


def test_folder_is_read_in_order_of_name_gzip_and_hidden_files_included_and_not(tmp_path):
    write(tmp_path / "b.jsonl", DOCUMENTS[2])
    write(tmp_path / ".hidden.jsonl", "not json")
    with gzip.open(tmp_path / "a.jsonl.gz", "wt") as file:
        file.write(json.dumps(DOCUMENTS[5]) + "\n")
    assert read(str(tmp_path))["id"] == ["5", "2"]


def test_line_separators_inside_a_string_do_not_cut_the_line(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_text(
        json.dumps({"id": "1", "title": "a", "text": "x\u2028y\x85z"}, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    assert read(str(path))["text"] == ["x\u2028y\x85z"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"id": "1", "title": "x"', "not valid JSON"),
        ("", "not valid JSON"),
        ('["id"]', "not a JSON object"),
        ('{"title": "x", "text": "y"}', "no id"),
        ('{"id": "a b", "title": "x", "text": "y"}', "is not a word"),
        ('{"id": "", "title": "x", "text": "y"}', "is not a word"),
        ('{"id": true, "title": "x", "text": "y"}', "is not a word"),
        ('{"id": "1", "title": "x"}', "no field 'text'"),
        ('{"id": "1", "title": "x", "text": 5}', "'text' is int"),
        ('{"id": "1", "contents": "only one"}', "splits into 1 parts"),
        ('{"id": "0", "title": "x", "text": "y"}', "stands in document 1 already"),
        ('{"id": 0, "title": "x", "text": "y"}', "stands in document 1 already"),
        (r'{"id": "1", "title": "x", "text": "\ud800"}', "surrogate"),
    ],
)
def test_bad_line_is_refused_with_file_and_line_before_anything_is_read_out(tmp_path, line, says):
    path = write(tmp_path / "c.jsonl", DOCUMENTS[0], line, DOCUMENTS[2])
    with pytest.raises(DataError) as caught:
        Reader(path, ["title", "text"])
    assert f"{path} line 2" in str(caught.value) and says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_not_utf8_name_the_line(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_bytes(json.dumps(DOCUMENTS[0]).encode() + b"\n\xff\xfe\n")
    with pytest.raises(DataError, match="line 2 is not UTF-8"):
        Reader(str(path), ["title", "text"])


def test_cut_gzip_file_is_an_error_not_a_shorter_collection(tmp_path):
    path = tmp_path / "c.jsonl.gz"
    whole = gzip.compress("".join(json.dumps(d) + "\n" for d in DOCUMENTS).encode())
    path.write_bytes(whole[:-20])
    with pytest.raises(DataError, match="cannot be read"):
        Reader(str(path), ["title", "text"])


@pytest.mark.parametrize("what", ["missing", "empty folder", "folder in folder", "BEIR folder", "empty file"])
def test_unusable_corpus(tmp_path, what):
    path = tmp_path / "c"
    if what != "missing":
        path.mkdir()
    if what == "folder in folder":
        (path / "d").mkdir()
    if what == "BEIR folder":
        write(path / "corpus.jsonl", DOCUMENTS[0])
        write(path / "queries.jsonl", DOCUMENTS[0])
    if what == "empty file":
        write(path / "c.jsonl")
    with pytest.raises(DataError):
        Reader(str(path), ["title", "text"])


@pytest.mark.parametrize(("shard", "shards"), [(2, 2), (-1, 2), (0, 0)])
def test_shard_that_does_not_exist_is_refused(tmp_path, shard, shards):
    path = write(tmp_path / "c.jsonl", *DOCUMENTS)
    with pytest.raises(ConfigError, match="shard-id"):
        read(path, shard=shard, shards=shards)


class Encoder:
    empty_count = 1


BATCH = {"id": ["1", "2"], "title": [None, "t"], "text": ["a", "b"], "vector": [{"x": 3}, {}]}


def test_writer_leaves_one_file_of_pyserinis_form(tmp_path, capsys):
    with jsonl.VectorWriter(str(tmp_path / "e"), (0, 1), Encoder()) as writer:
        writer.write(BATCH, ["title", "text"])
    assert [entry.name for entry in (tmp_path / "e").iterdir()] == ["embeddings.jsonl"]
    lines = [json.loads(line) for line in (tmp_path / "e" / "embeddings.jsonl").read_text().splitlines()]
    assert lines == [
        {"id": "1", "contents": "\na", "vector": {"x": 3}},
        {"id": "2", "contents": "t\nb", "vector": {}},
    ]
    assert "2 documents" in capsys.readouterr().out


def test_nothing_remains_of_an_output_that_was_not_finished_and_the_former_one_stays(tmp_path):
    (tmp_path / "embeddings.jsonl").write_text("former")
    with pytest.raises(KeyboardInterrupt), jsonl.VectorWriter(str(tmp_path), (0, 1), Encoder()) as writer:
        writer.write(BATCH, ["title", "text"])
        raise KeyboardInterrupt
    assert [entry.name for entry in tmp_path.iterdir()] == ["embeddings.jsonl"]
    assert (tmp_path / "embeddings.jsonl").read_text() == "former"


def test_unfinished_output_lies_where_anserini_does_not_look(tmp_path):
    with jsonl.VectorWriter(str(tmp_path / "e"), (0, 1), Encoder()) as writer:
        writer.write(BATCH, ["title", "text"])
        assert list((tmp_path / "e").iterdir()) == []
    assert [entry.name for entry in tmp_path.iterdir()] == ["e"]


def test_shards_do_not_overwrite_each_other(tmp_path):
    for shard in range(2):
        with jsonl.VectorWriter(str(tmp_path), (shard, 2), Encoder()) as writer:
            writer.write(BATCH, ["title", "text"])
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [f"embeddings.shard-{n}-of-2.jsonl" for n in range(2)]


@pytest.mark.parametrize(
    ("present", "shards"),
    [("embeddings.jsonl", 2), ("embeddings.shard-0-of-3.jsonl", 2), ("notes.txt", 1), (".hidden", 1)],
)
def test_folder_with_other_vectors_is_refused(tmp_path, present, shards):
    (tmp_path / present).write_text("{}")
    with pytest.raises(ConfigError, match=present):
        jsonl.VectorWriter(str(tmp_path), (0, shards), Encoder())


def test_file_in_place_of_the_output_folder_is_refused(tmp_path):
    (tmp_path / "e").write_text("")
    with pytest.raises(ConfigError, match="is a file"):
        jsonl.VectorWriter(str(tmp_path / "e"), (0, 1), Encoder())


def test_two_runs_into_one_folder_do_not_write_into_each_other(tmp_path):
    first, second = (jsonl.VectorWriter(str(tmp_path / "e"), (0, 1), Encoder()) for _ in range(2))
    with second:
        with first:
            first.write(BATCH, ["title", "text"])
            second.write({**BATCH, "id": ["8", "9"]}, ["title", "text"])
        assert '"id": "1"' in (tmp_path / "e" / "embeddings.jsonl").read_text()
    assert '"id": "8"' in (tmp_path / "e" / "embeddings.jsonl").read_text()


@pytest.mark.parametrize("docid", ["\ud800", "z\0z", "a\u2028b"])
def test_ids_that_a_run_cannot_hold(tmp_path, docid):
    path = write(tmp_path / "c.jsonl", {"id": docid, "title": "x", "text": "y"})
    with pytest.raises(DataError, match="line 1: the id"):
        Reader(path, ["title", "text"])
