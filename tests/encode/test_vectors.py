"""What is looked for in vectors before they are indexed."""

import gzip
import json
from pathlib import Path

import pytest

from pyserini_rescale.encode.vectors import count_vectors, read_vectors
from pyserini_rescale.errors import DataError

GOOD = [
    {"id": "a", "vector": {"x": 2, "##y": 3}},
    {"id": 7, "vector": {}},
    {"id": "c", "vector": {"[id:5]": 4, "Ġz": 1}},
]


def write(folder: Path, *lines: object, name: str = "part-000000.jsonl") -> Path:
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    (folder / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return folder


@pytest.mark.parametrize("name", ["embeddings.jsonl", "part-000000.jsonl.gz"])
def test_good_vectors_are_counted(tmp_path, name):
    assert count_vectors(write(tmp_path, *GOOD, name=name), most_terms=2) == {
        "documents": 3, "empty_vectors": 1, "first_empty_ids": ["7"], "unique_terms": 4, "postings": 4, "impacts": 10,
        "most_terms_in_a_document": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"id": "z", "vector": {"x": 3}', "is not"),
        ("", "is not"),
        ('{"id": "z"}', "is not"),
        ('{"id": "z", "vector": null}', "is not"),
        ('{"id": "z", "vector": {"x": 0.9}}', "not a positive integer"),
        ('{"id": "z", "vector": {"x": 3.0}}', "not a positive integer"),
        ('{"id": "z", "vector": {"x": NaN}}', "not a positive integer"),
        ('{"id": "z", "vector": {"x": Infinity}}', "not a positive integer"),
        ('{"id": "z", "vector": {"x": 0}}', "not a positive integer"),
        ('{"id": "z", "vector": {"x": -1}}', "not a positive integer"),
        ('{"id": "z", "vector": {"two words": 1}}', "'two words' holds white space"),
        (r'{"id": "z", "vector": {"\u2003": 1}}', "holds white space"),
        ('{"id": "z", "vector": {"": 1}}', "is empty"),
        (json.dumps({"id": "z", "vector": {"x" * 300: 1}}), "too long"),
        ('{"id": "two words", "vector": {}}', "not one word"),
        ('{"id": "a", "vector": {}}', "has been used before"),
        ('{"id": "z", "vector": {"p": 1, "q": 1, "r": 1}}', "3 terms, more than 2.*--force"),
    ],
)
def test_what_an_index_would_spoil_is_refused_with_file_and_line(tmp_path, line, says):
    with pytest.raises(DataError, match=f"part-000000.jsonl line 4.*{says}") as caught:
        count_vectors(write(tmp_path, *GOOD, line), most_terms=2)
    assert "\n" not in str(caught.value)


def test_without_a_limit_any_number_of_terms_is_counted(tmp_path):
    write(tmp_path, {"id": "z", "vector": {str(number): 1 for number in range(9000)}})
    assert count_vectors(tmp_path)["most_terms_in_a_document"] == 9000


def test_the_same_id_in_two_files_is_found(tmp_path):
    write(tmp_path, GOOD[0])
    write(tmp_path, GOOD[2], GOOD[0], name="part-000001.jsonl")
    with pytest.raises(DataError, match="part-000001.jsonl line 2: id 'a' has been used before .*part-000000"):
        count_vectors(tmp_path)


def test_vectors_come_in_order_of_files_and_lines(tmp_path):
    write(tmp_path, *GOOD[2:], name="b.jsonl")
    write(tmp_path, *GOOD[:2], name="a.jsonl")
    assert [name for _, name, _ in read_vectors(tmp_path)] == ["a", "7", "c"]
    with pytest.raises(DataError, match="no .jsonl file"):
        list(read_vectors(tmp_path / ".."))
