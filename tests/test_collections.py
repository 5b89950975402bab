"""Collections: what is read, what is refused and how, and the form written for Pyserini."""

import gzip
import json
from pathlib import Path

import pytest

from pyserini_rescale.cli import main
from pyserini_rescale.collections import Counts, open_collection, read_lines, write_pyserini_form
from pyserini_rescale.errors import ConfigError, DataError

DOCUMENTS = [
    {"_id": "d1", "title": "One", "text": "first"},
    {"_id": 2, "text": "second"},
    {"_id": "d3", "title": None, "text": ""},
]
QUERIES = [{"_id": "q1", "text": "what\tis\nfirst"}, {"_id": 7, "text": "seven"}, {"_id": "q9", "text": "not judged"}]
QRELS = "query-id\tcorpus-id\tscore\nq1\td1\t2\n7\t2\t1\nq1\tgone\t0\n"


def lines(objects: list) -> str:
    return "".join(json.dumps(found) + "\n" for found in objects)


def folder(path: Path, corpus: str | None = None, queries: str | None = None, qrels: str | None = QRELS) -> Path:
    (path / "qrels").mkdir(parents=True)
    (path / "corpus.jsonl").write_text(lines(DOCUMENTS) if corpus is None else corpus, encoding="utf-8", newline="\n")
    (path / "queries.jsonl").write_text(lines(QUERIES) if queries is None else queries, encoding="utf-8", newline="\n")
    if qrels is not None:
        (path / "qrels" / "test.tsv").write_text(qrels, encoding="utf-8", newline="\n")
    return path


def read_all(source: Path | str, split: str = "test") -> tuple[list, list, list]:
    found = open_collection(str(source), split)
    return list(found.documents()), list(found.queries()), list(found.judgements())


def test_beir_folder(tmp_path):
    documents, queries, judgements = read_all(folder(tmp_path / "c"))
    assert documents == [("d1", "One", "first"), ("2", "", "second"), ("d3", "", "")]
    assert queries == [("q1", "what\tis\nfirst"), ("7", "seven"), ("q9", "not judged")]
    assert judgements == [("q1", "d1", 2), ("7", "2", 1), ("q1", "gone", 0)]


def test_streams_can_be_started_again(tmp_path):
    found = open_collection(str(folder(tmp_path / "c")))
    assert list(found.documents()) == list(found.documents())


def test_gzipped_files(tmp_path):
    plain = folder(tmp_path / "plain")
    packed = folder(tmp_path / "packed")
    for name in ("corpus.jsonl", "queries.jsonl"):
        (packed / f"{name}.gz").write_bytes(gzip.compress((packed / name).read_bytes()))
        (packed / name).unlink()
    assert read_all(packed) == read_all(plain)


def test_a_cut_gzip_file_is_named(tmp_path):
    path = folder(tmp_path / "c")
    (path / "corpus.jsonl").unlink()
    (path / "corpus.jsonl.gz").write_bytes(gzip.compress(lines(DOCUMENTS * 1).encode())[:-12])
    with pytest.raises(DataError, match=r"corpus\.jsonl\.gz"):
        read_all(path)


def test_qrels_without_a_header_and_with_windows_line_ends(tmp_path):
    without = QRELS.split("\n", 1)[1]
    expected = read_all(folder(tmp_path / "a"))[2]
    assert read_all(folder(tmp_path / "b", qrels=without))[2] == expected
    assert read_all(folder(tmp_path / "c", qrels=QRELS.replace("\n", "\r\n")))[2] == expected


def test_byte_order_mark_is_not_text(tmp_path):
    assert read_all(folder(tmp_path / "c", corpus="\ufeff" + lines(DOCUMENTS)))[0][0].id == "d1"


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r"])
def test_lines_end_at_newlines_only(tmp_path, separator):
    text = f"before{separator}after"
    raw = (
        '{"_id": "d1", "text": "' + text + '"}\n'
        if separator not in "\x0b\x0c\x1c\r"
        else lines([{"_id": "d1", "text": text}])
    )
    documents, _, _ = read_all(folder(tmp_path / "c", corpus=raw, qrels="q1\td1\t1\n"))
    assert [document.text for document in documents] == [text]


def test_a_lone_carriage_return_ends_no_line(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"a\rb\nc\r\n")
    assert [line for _, line in read_lines(path)] == ["a\rb", "c"]


GOOD = lines(DOCUMENTS[:1])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not valid JSON"),
        ("", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('["d2"]', "not a JSON object but list"),
        ('{"text": "t"}', "no field _id"),
        ('{"_id": "d2", "title": "t"}', "no field text"),
        ('{"_id": "d2", "text": null}', "text is not a string but NoneType"),
        ('{"_id": "d2", "text": 5}', "text is not a string but int"),
        ('{"_id": "d2", "text": ["t"]}', "text is not a string but list"),
        ('{"_id": "d2", "text": "t", "title": 3}', "title is not a string but int"),
        ('{"_id": "d1", "text": "t"}', "'d1' has been used"),
        ('{"_id": "", "text": "t"}', "is empty"),
        ('{"_id": "d 2", "text": "t"}', "is not one word"),
        ('{"_id": "d\\u00a02", "text": "t"}', "is not one word"),
        ('{"_id": "d2\\n", "text": "t"}', "is not one word"),
        ('{"_id": 2.5, "text": "t"}', "neither a string nor an integer"),
        ('{"_id": true, "text": "t"}', "neither a string nor an integer"),
        ('{"_id": null, "text": "t"}', "neither a string nor an integer"),
        ('{"_id": "d2", "text": "half \\ud800"}', "surrogate"),
    ],
)
def test_bad_documents_are_refused_with_file_and_line(tmp_path, line, message):
    path = folder(tmp_path / "c", corpus=GOOD + line + "\n")
    with pytest.raises(DataError, match=message) as caught:
        read_all(path)
    assert f"{path / 'corpus.jsonl'} line 2" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_numeric_id_equal_to_a_string_is_a_duplicate(tmp_path):
    with pytest.raises(DataError, match="line 2.*'5' has been used"):
        read_all(folder(tmp_path / "c", corpus=lines([{"_id": "5", "text": ""}, {"_id": 5, "text": ""}])))


def test_bytes_that_are_not_utf8_are_refused_with_the_line(tmp_path):
    path = folder(tmp_path / "c")
    (path / "corpus.jsonl").write_bytes(GOOD.encode() + b'{"_id": "d2", "text": "\xe9"}\n')
    with pytest.raises(DataError, match="line 2 is not UTF-8"):
        read_all(path)


def test_bad_queries_are_refused_with_file_and_line(tmp_path):
    with pytest.raises(DataError, match=r"queries\.jsonl line 2.*no field text"):
        read_all(folder(tmp_path / "a", queries='{"_id": "q1", "text": "t"}\n{"_id": "q2"}\n'))
    with pytest.raises(DataError, match=r"queries\.jsonl line 2.*used"):
        read_all(folder(tmp_path / "b", queries='{"_id": "q1", "text": "t"}\n{"_id": "q1", "text": "u"}\n'))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q1\td1", "2 column"),
        ("q1 d1 1", "1 column"),
        ("q1\td1\t1\t0", "4 column"),
        ("", "1 column"),
        ("q1\td1\t1.0", "grade '1.0' is not an integer"),
        ("q1\td1\tx", "is not an integer"),
        ("q1\td1\t2147483648", "beyond 1,000,000"),
        ("q1\td\0\t1", "holds a NUL"),
        ("q1\td1\t", "is not an integer"),
        ("q1\td1\t1_0", "is not an integer"),
        ("q1\td1\t\u0661", "is not an integer"),
        ("q1\td 1\t1", "not one word"),
        ("\td1\t1", "is empty"),
        ("q0\td0\t2", "as 2, an earlier line as 1"),
        ("query-id\tcorpus-id\tscore", "is not an integer"),
    ],
)
def test_bad_qrels_are_refused_with_file_and_line(tmp_path, line, message):
    path = folder(tmp_path / "c", qrels=f"q0\td0\t1\n{line}\n")
    with pytest.raises(DataError, match=message) as caught:
        read_all(path)
    assert f"{path / 'qrels' / 'test.tsv'} line 2" in str(caught.value)


def test_an_unknown_header_is_not_skipped(tmp_path):
    with pytest.raises(DataError, match="line 1.*header must read"):
        read_all(folder(tmp_path / "c", qrels="qid\tdocid\tgrade\nq1\td1\t1\n"))


def test_a_repeated_judgement_counts_once_and_grades_below_zero_stay(tmp_path):
    assert read_all(folder(tmp_path / "c", qrels="q1\td1\t-1\nq1\td1\t-1\n"))[2] == [("q1", "d1", -1)]


def test_missing_parts_are_named(tmp_path):
    with pytest.raises(DataError, match=r"qrels/dev\.tsv does not exist; splits found there: test"):
        open_collection(str(folder(tmp_path / "a")), "dev")
    path = folder(tmp_path / "b")
    (path / "corpus.jsonl").unlink()
    with pytest.raises(DataError, match=r"corpus\.jsonl does not exist"):
        open_collection(str(path))
    with pytest.raises(DataError, match="is not a folder"):
        open_collection(str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="is not a folder"):
        open_collection("./nowhere")


# ir_datasets


class _Dataset:
    """Stands for a data set that is known but cannot be fetched."""

    def __init__(self, error: Exception):
        self.error = error

    def has(self, kind: str) -> bool:
        return True

    def docs_iter(self):
        raise self.error

    queries_iter = qrels_iter = docs_iter


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A real data set of ir_datasets, made of local files, under the id toy/test."""
    import ir_datasets

    for name, text in (("docs", "d1\tfirst\nd2\tsecond\n"), ("queries", "q1\twhat\n"), ("qrels", "q1 0 d2 1\n")):
        (tmp_path / name).write_text(text)
    made = ir_datasets.create_dataset(str(tmp_path / "docs"), str(tmp_path / "queries"), str(tmp_path / "qrels"))
    monkeypatch.setattr(ir_datasets, "load", lambda name: {"toy/test": made}[name])


def test_ir_datasets(toy):
    documents, queries, judgements = read_all("toy/test")
    assert documents == [("d1", "", "first"), ("d2", "", "second")]
    assert queries == [("q1", "what")]
    assert judgements == [("q1", "d2", 1)]


def test_unknown_ir_datasets_id(toy):
    with pytest.raises(DataError, match="toy/dev is neither a folder here nor an id of ir_datasets.*--data FOLDER"):
        open_collection("toy/dev")


def test_ir_datasets_id_without_judgements(monkeypatch):
    import ir_datasets

    dataset = _Dataset(OSError())
    dataset.has = lambda kind: kind == "docs"
    monkeypatch.setattr(ir_datasets, "load", lambda name: dataset)
    with pytest.raises(DataError, match="has no queries, qrels"):
        open_collection("msmarco-passage")


@pytest.mark.parametrize(
    "error",
    [ConnectionError("no route\nto host"), RuntimeError("All download sources failed", ["x" * 1000]), KeyError("a")],
)
def test_a_failed_download_is_one_line_that_says_what_to_do(monkeypatch, error):
    import ir_datasets

    monkeypatch.setattr(ir_datasets, "load", lambda name: _Dataset(error))
    with pytest.raises(
        DataError, match="cannot provide beir/x/test .*--data FOLDER or PYSERINI_RESCALE_DATA"
    ) as caught:
        read_all("beir/x/test")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


# The form for Pyserini


def test_written_form(tmp_path):
    counts = write_pyserini_form(open_collection(str(folder(tmp_path / "c"))), tmp_path / "out")
    assert counts == Counts(
        documents=3, empty_documents=1, judged_queries=2, queries_without_text=(), judgements=3, judgements_outside=1,
        sha256=counts.sha256,
    )  # fmt: skip
    out = tmp_path / "out"
    corpus = [json.loads(line) for line in (out / "corpus" / "corpus.jsonl").read_text().splitlines()]
    assert corpus[:2] == [{"id": "d1", "title": "One", "text": "first"}, {"id": "2", "title": "", "text": "second"}]
    assert (out / "topics.tsv").read_text() == "q1\twhat is first\n7\tseven\n"
    assert json.loads((out / "topics.json").read_text()) == {"q1": {"title": "what is first"}, "7": {"title": "seven"}}
    assert (out / "qrels.txt").read_text() == "q1 0 d1 2\nq1 0 gone 0\n7 0 2 1\n"
    assert json.loads((out / "counts.json").read_text())["documents"] == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "out"]


def test_the_fingerprint_tells_collections_apart(tmp_path):
    """Not where they come from: the same content has the same fingerprint."""
    parts = {
        "same": {}, "corpus": {"corpus": lines(DOCUMENTS).replace("second", "third")}, "qrels": {"qrels": QRELS.replace("d1\t2", "d1\t1")},
        "queries": {"queries": lines([{"_id": "q1", "text": "other"}, {"_id": 7, "text": "seven"}])},
    }  # fmt: skip
    found = {}
    for name, changes in ({"first": {}} | parts).items():
        source = open_collection(str(folder(tmp_path / name, **changes)))
        found[name] = write_pyserini_form(source, tmp_path / "out" / name).sha256
    again = write_pyserini_form(open_collection(str(tmp_path / "out" / "first")), tmp_path / "again").sha256
    assert found["first"] == found["same"] == again and len(found["first"]) == 64
    assert len(set(found.values())) == 4


def test_judged_queries_without_text_are_reported(tmp_path):
    path = folder(tmp_path / "c", qrels=QRELS + "q404\td1\t1\n")
    counts = write_pyserini_form(open_collection(str(path)), tmp_path / "out")
    assert counts.queries_without_text == ("q404",) and counts.judged_queries == 3
    assert "q404 0 d1 1" in (tmp_path / "out" / "qrels.txt").read_text()


def test_text_survives_exactly(tmp_path):
    text = 'quotes " \\ \u2028 \U0001f600 \x00 tab\t'
    path = folder(tmp_path / "c", corpus=lines([{"_id": "d1", "text": text}]))
    write_pyserini_form(open_collection(str(path)), tmp_path / "out")
    written = (tmp_path / "out" / "corpus" / "corpus.jsonl").read_bytes()
    assert written.isascii() and json.loads(written)["text"] == text


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"corpus": ""}, "has no documents"),
        ({"qrels": "query-id\tcorpus-id\tscore\n"}, "has no judgements"),
        ({"qrels": "other\td1\t1\n"}, "none of the 1 judged queries has a text"),
        ({"queries": '{"_id": "q1", "text": " \\n "}\n'}, "query q1 has an empty text"),
    ],
)
def test_what_could_not_be_measured_is_refused(tmp_path, parts, message):
    with pytest.raises(DataError, match=message):
        write_pyserini_form(open_collection(str(folder(tmp_path / "c", **parts))), tmp_path / "out")
    assert not (tmp_path / "out").exists() and not (tmp_path / "out.partial").exists()


def test_output_is_replaced_only_if_it_is_ours(tmp_path):
    collection = open_collection(str(folder(tmp_path / "c")))
    write_pyserini_form(collection, tmp_path / "out")
    write_pyserini_form(collection, tmp_path / "out")
    (tmp_path / "out" / "precious").touch()
    with pytest.raises(ConfigError, match="precious"):
        write_pyserini_form(collection, tmp_path / "out")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError):
        write_pyserini_form(collection, tmp_path / "file")
    assert (tmp_path / "out" / "precious").exists()


def test_a_failure_leaves_the_earlier_output(tmp_path):
    write_pyserini_form(open_collection(str(folder(tmp_path / "a"))), tmp_path / "out")
    with pytest.raises(DataError):
        write_pyserini_form(open_collection(str(folder(tmp_path / "b", corpus=GOOD + "{\n"))), tmp_path / "out")
    assert json.loads((tmp_path / "out" / "counts.json").read_text())["documents"] == 3


# The written form, read again


def test_the_written_form_is_a_collection_too(tmp_path):
    path = folder(tmp_path / "c", qrels=QRELS.replace("q1\tgone", "q404\tgone"))
    write_pyserini_form(open_collection(str(path)), tmp_path / "out")
    documents, queries, judgements = read_all(tmp_path / "out", "any split")
    assert documents == read_all(path)[0]
    assert queries == [("q1", "what is first"), ("7", "seven")]
    assert judgements == [("q1", "d1", 2), ("7", "2", 1), ("q404", "gone", 0)]
    write_pyserini_form(open_collection(str(tmp_path / "out")), tmp_path / "again")
    for file in ("corpus/corpus.jsonl", "topics.json", "topics.tsv", "qrels.txt", "counts.json"):
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / "out" / file).read_bytes()


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("topics.json", "{", r"topics\.json cannot be read as JSON"),
        ("topics.json", "[]", r"topics\.json is not of the form"),
        ("topics.json", '{"q1": "text"}', r"topics\.json is not of the form"),
        ("topics.json", '{"q1": {"title": 3}}', "query q1: title is not a string but int"),
        ("topics.json", '{"q1": {}}', "query q1: title is not a string but NoneType"),
        ("topics.json", '{"q 1": {"title": "t"}}', "is not one word"),
        ("qrels.txt", "q1 0 d1 1\nq1 d1 1\n", r"qrels\.txt line 2 has 3 column"),
        ("qrels.txt", "q1 0 d1 x\n", r"qrels\.txt line 1: grade 'x' is not an integer"),
        ("qrels.txt", "q1 0 d1 1\nq1 0 d1 2\n", r"qrels\.txt line 2 judges query q1"),
        ("corpus/corpus.jsonl", '{"_id": "d1", "text": "t"}\n', "line 1 has no field id"),
    ],
)
def test_a_written_form_that_was_damaged(tmp_path, file, text, message):
    write_pyserini_form(open_collection(str(folder(tmp_path / "c"))), tmp_path / "out")
    (tmp_path / "out" / file).write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_all(tmp_path / "out")


# The command


def test_command_prints_counts_and_what_to_type_next(tmp_path, capsys):
    path = folder(tmp_path / "c", qrels=QRELS + "q404\td1\t1\n")
    assert main(["collection", str(path), "--output", str(tmp_path / "out put")]) == 0
    out = capsys.readouterr().out
    assert "documents                    3   (1 without title and text)" in out
    assert "judged queries               3   (1 without a text)" in out and "score 0: q404" in out
    assert "judgements                   4   (1 of documents not in the corpus)" in out
    assert f"--corpus '{tmp_path / 'out put'}'/corpus" in out and "python -m pyserini.search.lucene --impact" in out


def test_command_ends_with_one_line_on_bad_input(tmp_path, capsys):
    path = folder(tmp_path / "c", corpus=GOOD + "{\n")
    assert main(["collection", str(path), "--output", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and "corpus.jsonl line 2" in error


@pytest.mark.parametrize("name", ["corpus/mydata.txt", "other.txt"])
def test_nothing_of_the_users_is_removed(tmp_path, name):
    from pyserini_rescale.errors import ConfigError

    kept = tmp_path / "out" / name
    kept.parent.mkdir(parents=True)
    kept.write_text("precious")
    beside = tmp_path / "out.partial"
    beside.mkdir()
    (beside / "thesis.txt").write_text("precious")
    with pytest.raises(ConfigError, match=name.rpartition("/")[2]):
        write_pyserini_form(None, tmp_path / "out")
    assert kept.read_text() == (beside / "thesis.txt").read_text() == "precious"


@pytest.mark.parametrize("folder", ["", "/"])
def test_output_folder_without_a_name(folder):
    from pyserini_rescale.errors import ConfigError

    with pytest.raises(ConfigError, match="cannot be an output folder"):
        write_pyserini_form(None, folder)
