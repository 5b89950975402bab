"""Files of texts: what is read, what is refused, and how single texts become pairs."""

import gzip
import json

import pytest

from pyserini_rescale.errors import ConfigError, DataError
from pyserini_rescale.model.texts import builtin_texts, read_texts


def write(path, *records) -> str:
    path.write_text(
        "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in records), encoding="utf-8"
    )
    return str(path)


def test_builtin_pairs_are_sixteen_different_ones():
    texts = read_texts("builtin")
    assert texts == builtin_texts() and len(texts.queries) == len(texts.passages) == 16
    assert (
        len(set(texts.queries)) == len(set(texts.passages)) == 16
        and texts.documents == texts.passages
        and not texts.halved
    )
    assert all(text.isascii() and text == text.strip() for text in (*texts.queries, *texts.passages))


def test_plain_text_becomes_halves(tmp_path):
    texts = read_texts(
        write(tmp_path / "t.txt", "\ufeffone two three four", "", "  five six seven  ", "eight", "a\u2028b")
    )
    assert texts.documents == ("one two three four", "five six seven", "eight", "a\u2028b")
    assert texts.queries == ("one two", "five", "a") and texts.passages == ("three four", "six seven", "b")
    assert texts.halved and "4 texts" in texts.describe()


def test_pairs_negatives_and_repeats(tmp_path):
    texts = read_texts(write(
        tmp_path / "p.jsonl",
        {"query": "q1", "positive": "p1", "negative": "n1"},
        {"query": "q2", "passage": "p2", "negative": "p1"},
        {"query": "q1", "passage": "p3", "negative": "n1"},
        {"query": "q4", "passage": "p2"},
    ))  # fmt: skip
    assert texts.queries == ("q1", "q2") and texts.passages == ("p1", "p2") and texts.negatives == ("n1",)
    assert texts.documents == ("p1", "p2", "n1") and texts.left_out == 2 and "2 that repeat" in texts.describe()


def test_single_texts_of_a_beir_corpus(tmp_path):
    texts = read_texts(
        write(tmp_path / "c.jsonl", {"_id": "1", "title": "A title", "text": "and text"}, {"text": "x y", "title": ""})
    )
    assert texts.documents == ("A title and text", "x y") and texts.queries == ("A title", "x")


def test_limit(tmp_path):
    path = write(tmp_path / "t.txt", *(f"text {n}" for n in range(9)), "\n")
    assert len(read_texts(path, 4).documents) == 4
    for limit in (0, -1, True, 2.0):
        with pytest.raises(ConfigError, match="limit"):
            read_texts(path, limit)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("t.txt", b"", "holds no text"),
        ("t.txt", b"\n \n", "holds no text"),
        ("t.jsonl", b"", "holds no text"),
        ("t.txt", b"good\n\xff\xfe\n", "line 2 is not UTF-8"),
        ("t.jsonl", b'{"text": "a"}\n{"text": ', "line 2 is not valid JSON"),
        ("t.jsonl", b'["a"]\n', "line 1 is not a JSON object"),
        ("t.jsonl", b'{"query": "a"}\n', "line 1: no field 'positive'"),
        ("t.jsonl", b'{"contents": "a"}\n', "line 1: no field 'text' (it has: contents)"),
        ("t.jsonl", b'{"query": "a", "passage": 3}\n', "'passage' is int, not text"),
        ("t.jsonl", b'{"query": " ", "passage": "b"}\n', "'query' is empty"),
        ("t.jsonl", b'{"text": "a"}\n{"query": "a", "passage": "b"}\n', "mixes pairs and single texts"),
    ],
)
def test_files_that_cannot_be_used(name, content, says, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as raised:
        read_texts(str(tmp_path / name))
    assert says in str(raised.value) and name in str(raised.value) and "\n" not in str(raised.value)


def test_missing_file_and_folder(tmp_path):
    for path in (tmp_path / "none.txt", tmp_path):
        with pytest.raises(DataError, match="cannot be read"):
            read_texts(str(path))


def test_gzipped_files_are_read_by_the_name_before_gz(tmp_path):
    for name, content in (("t.txt.gz", b"one text\n"), ("t.jsonl.gz", b'{"text": "one text"}\n')):
        (tmp_path / name).write_bytes(gzip.compress(content))
        assert read_texts(str(tmp_path / name)).documents == ("one text",)
