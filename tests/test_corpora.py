"""Corpora and topics as streams: kinds, fields, numbers, what is refused, and ids that come twice."""

import gzip
import json
import os
from pathlib import Path

import pytest

from pyserini_rescale.collections import Query
from pyserini_rescale.corpora import Ids, open_corpus, open_topics, scan
from pyserini_rescale.errors import ConfigError, DataError


def write(path: Path, *lines: object) -> str:
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return str(path)


def read(source: str, *fields: str, **options) -> list[tuple[str, str]]:
    return [tuple(text) for _, text in open_corpus(source, fields, **options).texts()]


DOCUMENTS = [
    {"_id": "d1", "title": "One", "text": "first "},
    {"_id": 2, "title": "", "text": "second"},
    {"_id": "d3", "title": None, "text": ""},
    {"_id": "d4", "text": "no title"},
]
TEXTS = [("d1", "One first"), ("2", "second"), ("d3", ""), ("d4", "no title")]


def test_jsonl_gz_and_folders_give_the_same(tmp_path):
    assert read(write(tmp_path / "a.jsonl", *DOCUMENTS)) == TEXTS
    assert read(write(tmp_path / "a.jsonl.gz", *DOCUMENTS)) == TEXTS
    write(tmp_path / "beir" / "corpus.jsonl", *DOCUMENTS)
    write(tmp_path / "beir" / "queries.jsonl", {"_id": "q", "text": "x"})
    assert read(str(tmp_path / "beir")) == TEXTS
    # What `collection` writes, which Pyserini reads.
    write(tmp_path / "ours" / "corpus" / "corpus.jsonl", *({**one, "id": one["_id"]} for one in DOCUMENTS))
    assert read(str(tmp_path / "ours")) == TEXTS
    # A folder of parts, in order of name.
    write(tmp_path / "parts" / "b.jsonl", *DOCUMENTS[2:])
    write(tmp_path / "parts" / "a.jsonl.gz", *DOCUMENTS[:2])
    write(tmp_path / "parts" / ".hidden", "no JSON")
    assert read(str(tmp_path / "parts")) == TEXTS


def test_fields_are_joined_without_empty_ones(tmp_path):
    path = write(
        tmp_path / "a.jsonl",
        {"docid": "a", "title": "T", "headings": "", "segment": " S "},
        {"docid": "b", "title": None, "headings": "H", "segment": "S"},
        {"docid": "c", "title": " ", "headings": "", "segment": None},
    )
    assert read(path, "title", "headings", "segment") == [("a", "T S"), ("b", "H S"), ("c", "")]
    assert read(path, "segment", "title") == [("a", "S T"), ("b", "S"), ("c", "")]
    assert read(write(tmp_path / "c.jsonl", {"id": 7, "contents": "one\ntwo"})) == [("7", "one\ntwo")]
    assert read(write(tmp_path / "k.jsonl", {"key": "x", "id": "y", "text": "t"}), id_field="key") == [("x", "t")]


def test_tables(tmp_path):
    assert read(write(tmp_path / "a.tsv", "1\ta text", "2\t")) == [("1", "a text"), ("2", "")]
    assert read(write(tmp_path / "b.tsv.gz", "1\tT\ta text", "2\t\tb")) == [("1", "T a text"), ("2", "b")]
    documents = write(tmp_path / "c.tsv", "D1\thttp://x\tTitle\tBody")
    assert read(documents, "url", "title", "body") == [("D1", "http://x Title Body")]
    with pytest.raises(DataError, match="c.tsv line 1 has 4 column"):
        read(documents)
    with pytest.raises(DataError, match="3 column.*--fields names 2"):
        read(documents, "title", "body")


def test_line_separators_inside_a_text_are_text(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"id": "1", "text": "x\u2028y\x85z"}, ensure_ascii=False) + "\n", encoding="utf-8")
    assert read(str(path)) == [("1", "x\u2028y\x85z")]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"_id": "1"', "not valid JSON"),
        ("", "not valid JSON"),
        ("[1]", "not a JSON object"),
        ('{"text": "x"}', "has no id"),
        ('{"_id": "a b", "text": "x"}', "not one word"),
        ('{"_id": "1", "title": "x"}', "has no field text"),
        ('{"_id": "1", "text": 5}', "text is not a string"),
        (r'{"_id": "1", "text": "\ud800"}', "surrogate"),
        ('{"_id": "d1", "text": "x"}', "has been used before .*line 1"),
    ],
)
def test_what_cannot_be_used_names_file_and_line(tmp_path, line, says):
    corpus = open_corpus(write(tmp_path / "c.jsonl", DOCUMENTS[0], line))
    with pytest.raises(DataError, match=f"c.jsonl line 2.*{says}") as caught:
        scan(corpus)
    assert "\n" not in str(caught.value)


def test_unusable_sources(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "nested" / "inner").mkdir(parents=True)
    cut = Path(write(tmp_path / "cut.jsonl.gz", *DOCUMENTS * 50))
    cut.write_bytes(cut.read_bytes()[:-9])
    for source, says in (
        (tmp_path / "none.jsonl", "does not exist"),
        (tmp_path / "empty", "empty folder"),
        (tmp_path / "nested", "not a file"),
        (write(tmp_path / "x.parquet", "x"), "no known kind"),
        (write(tmp_path / "nothing.jsonl"), "no document"),
        (cut, "cannot be read"),
    ):
        with pytest.raises(DataError, match=says):
            scan(open_corpus(str(source)))
    with pytest.raises(ConfigError, match="each field once"):
        open_corpus(str(cut), ("text", "text"))


def test_a_scan_tells_corpora_apart(tmp_path):
    one = scan(open_corpus(write(tmp_path / "a.jsonl", *DOCUMENTS)))
    assert (one.documents, one.empty) == (4, 1)
    assert one == scan(open_corpus(write(tmp_path / "a.jsonl.gz", *DOCUMENTS)))
    changed = [*DOCUMENTS[:3], {"_id": "d4", "text": "no titl"}]
    for other in (changed, DOCUMENTS[::-1], DOCUMENTS[:3]):
        assert scan(open_corpus(write(tmp_path / "b.jsonl", *other))).sha256 != one.sha256
    # An id and a text that run into each other are not another pair.
    left, right = ({"_id": "ab", "text": "c"}, {"_id": "a", "text": "bc"})
    assert len({scan(open_corpus(write(tmp_path / "c.jsonl", one))).sha256 for one in (left, right)}) == 2


def test_equal_hashes_of_different_ids_are_not_taken_for_the_same_id(monkeypatch):
    monkeypatch.setattr("pyserini_rescale.corpora.hash", lambda name: len(name), raising=False)

    def check(*names: str) -> None:
        ids = Ids()
        for name in names:
            ids.add(name)
        ids.check(lambda: ((f"line {number}", name) for number, name in enumerate(names, 1)))

    check("a", "b", "cc")
    check()
    with pytest.raises(DataError, match="line 3: id 'a' has been used before \\(line 1\\)"):
        check("a", "b", "a")


def test_topics_of_every_kind(tmp_path):
    expected = [Query("1", "wind tunnel"), Query("007", "heat")]
    objects = [
        {"_id": 1, "text": "wind\ttunnel"},
        {"_id": "007", "text": "heat"},
    ]
    assert open_topics(write(tmp_path / "queries.jsonl", *objects)) == expected
    assert open_topics(str(tmp_path)) == expected
    assert open_topics(write(tmp_path / "t.tsv", "1\twind tunnel", "007\theat")) == expected
    text = json.dumps({"1": {"title": "wind tunnel"}, "007": {"title": "heat"}})
    assert open_topics(write(tmp_path / "ours" / "topics.json", text)) == expected
    assert open_topics(str(tmp_path / "ours")) == expected


@pytest.mark.parametrize(
    ("lines", "says"),
    [(("1\tx", "1\ty"), "comes twice"), (("1\t ",), "empty text"), ((), "no topic"), (("1\tx\ty",), "2 column")],
)
def test_topics_that_cannot_be_used(tmp_path, lines, says):
    with pytest.raises(DataError, match=says):
        open_topics(write(tmp_path / "t.tsv", *lines))
    with pytest.raises(DataError, match="does not exist"):
        open_topics(str(tmp_path / "none.tsv"))


@pytest.mark.parametrize("open_", [open_corpus, open_topics])
def test_names_that_cannot_be_files_and_what_is_read_once_only(tmp_path, monkeypatch, open_):
    os.mkfifo(tmp_path / "pipe.jsonl")
    for path in (tmp_path / "pipe.jsonl", Path("/dev/null")):
        with pytest.raises(DataError, match="not a regular file; it is read more than once"):
            open_(str(path))
    for source in ("~nouser/x", "/" + "x" * 300, str(tmp_path / "none")):
        with pytest.raises(DataError, match="does not exist"):
            open_(source)
    with pytest.raises((ConfigError, DataError)):  # no id of ir_datasets
        open_("x" * 300)
