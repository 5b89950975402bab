"""Exports: the files against the vectors, by protobuf's own parser and by ours, and what does not read back."""

import dataclasses
import io
import json
import random
from pathlib import Path

import numpy as np
import pytest

from pyserini_rescale import indexing
from pyserini_rescale.cli import main
from pyserini_rescale.encode import ciff, export
from pyserini_rescale.encode.folder import SETTINGS, file_sha256
from pyserini_rescale.encode.marker import beside, marker
from pyserini_rescale.encode.quantize import FIXED
from pyserini_rescale.errors import ConfigError, DataError

TERMS = ["zebra", "##ing", "Ġw", "é", "[id:7]", *(f"t{number}" for number in range(40))]


def make(folder: Path, documents: int = 300) -> tuple[Path, dict[str, dict[str, int]]]:
    """An encoded corpus as export needs it: vectors in two files, and a manifest."""
    chance = random.Random(0)
    found = {
        f"d{number}": {
            term: chance.choice([1, 2, 127, 128, 255, 300, 20_000])
            for term in chance.sample(TERMS, chance.randint(0, 9))
        }
        for number in range(documents)
    }
    (folder / "vectors").mkdir(parents=True)
    lines = [json.dumps({"id": name, "vector": vector}) + "\n" for name, vector in found.items()]
    (folder / "vectors" / "part-000000.jsonl").write_text("".join(lines[:200]))
    (folder / "vectors" / "part-000001.jsonl").write_text("".join(lines[200:]))
    write_manifest(folder, documents)
    return folder, found


def write_manifest(folder: Path, documents: int) -> None:
    """A manifest, and settings, of the vectors as they are; sums that an export does not look at are 0."""
    settings = {
        "asked": {
            "model": "m", "quantizer": "pyserini", "fields": [], "id_field": None, "documents": documents, "corpus": "c",
            "unit": 200, "gzip": False,
        },
        "model_name": "m", "quantizer": dataclasses.asdict(FIXED["pyserini"]), "calibration": None,
        "corpus": {"source": "corpus.jsonl", "documents": documents, "empty": 0, "sha256": "c", "files": []},
    }  # fmt: skip
    sums = dict.fromkeys(("empty_vectors", "postings", "impacts", "clamped", "left_out", "bytes"), 0)
    parts = [
        {"file": path.name, "documents": 0, "bytes": path.stat().st_size, "sha256": file_sha256(path)}
        for path in sorted((folder / "vectors").iterdir())
    ]
    (folder / SETTINGS).write_text(json.dumps(settings))
    (folder / "manifest.json").write_text(json.dumps({"documents": documents, **sums, **settings, "parts": parts}))


@pytest.fixture
def encoded(tmp_path):
    return make(tmp_path / "encoded")


@pytest.fixture
def topics(tmp_path) -> Path:
    path = tmp_path / "topics.json"
    path.write_text(json.dumps({"1": {"title": "zebra zebra t1"}, "007": {"title": "##ing"}}))
    beside(path).write_text(json.dumps(marker(FIXED["pyserini"])))
    return path


def messages():
    """The CIFF messages, made by protobuf from the published definition's fields."""
    pool = pytest.importorskip("google.protobuf.descriptor_pool")
    from google.protobuf import descriptor_pb2, message_factory

    kinds = {"int32": 5, "int64": 3, "double": 1, "string": 9, "message": 11}
    layout = {
        "Header": [
            ("version", "int32"), ("num_postings_lists", "int32"), ("num_doc_records", "int32"), ("total_postings_lists", "int32"),
            ("total_docs", "int32"), ("total_terms_in_collection", "int64"), ("average_doclength", "double"), ("description", "string"),
        ],
        "Posting": [("docid", "int32"), ("tf", "int32")],
        "PostingsList": [("term", "string"), ("df", "int64"), ("cf", "int64"), ("postings", "message")],
        "DocRecord": [("docid", "int32"), ("collection_docid", "string"), ("doclength", "int32")],
    }  # fmt: skip
    file = descriptor_pb2.FileDescriptorProto(name="ciff.proto", package="t", syntax="proto3")
    for name, fields in layout.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields, start=1):
            repeated = kind == "message"
            message.field.add(
                name=field,
                number=number,
                type=kinds[kind],
                label=3 if repeated else 1,
                type_name=".t.Posting" if repeated else None,
            )
    found = message_factory.GetMessages([file], pool=pool.DescriptorPool())
    return [found[f"t.{name}"] for name in ("Header", "PostingsList", "DocRecord")]


def delimited(stream, kind, number: int):
    """Parse ``number`` messages as writeDelimitedTo writes them."""
    for _ in range(number):
        size = shift = 0
        while True:
            byte = stream.read(1)[0]
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        yield kind.FromString(stream.read(size))


@pytest.mark.parametrize("run", [2**25, 50])  # one run of postings, and many
def test_ciff_as_protobuf_reads_it(encoded, topics, tmp_path, monkeypatch, run):
    monkeypatch.setattr(export, "POSTINGS_IN_A_RUN", run)
    folder, vectors = encoded
    assert (
        main(["export", str(folder), "--format", "ciff", "--topics", str(topics), "--output", str(tmp_path / "out")])
        == 0
    )
    stream = io.BytesIO((tmp_path / "out" / "documents.ciff").read_bytes())
    header_kind, list_kind, record_kind = messages()
    header = next(delimited(stream, header_kind, 1))
    terms = {term for vector in vectors.values() for term in vector}
    total = sum(sum(vector.values()) for vector in vectors.values())
    assert (header.version, header.num_postings_lists, header.num_doc_records) == (1, len(terms), len(vectors))
    assert (header.total_docs, header.total_terms_in_collection) == (len(vectors), total)
    assert header.average_doclength == pytest.approx(total / len(vectors)) and "pyserini-rescale" in header.description
    found: dict[int, dict[str, int]] = {number: {} for number in range(len(vectors))}
    order = []
    for postings in delimited(stream, list_kind, header.num_postings_lists):
        order.append(postings.term)
        assert postings.df == len(postings.postings) and postings.cf == sum(posting.tf for posting in postings.postings)
        number = 0
        for posting in postings.postings:
            number += posting.docid
            found[number][postings.term] = posting.tf
    assert order == sorted(terms, key=str.encode)
    records = list(delimited(stream, record_kind, header.num_doc_records))
    assert stream.read() == b"" and [record.docid for record in records] == list(range(len(vectors)))
    assert {record.collection_docid: found[record.docid] for record in records} == vectors
    assert [record.doclength for record in records] == [sum(vector.values()) for vector in vectors.values()]
    assert (tmp_path / "out" / "topics.tsv").read_text() == "1\tzebra zebra t1\n007\t##ing\n"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["documents.ciff", "export.json", "topics.tsv"]


def test_our_reader_adds_the_differences_up(tmp_path):
    with open(tmp_path / "x.ciff", "wb") as stream:
        ciff.write_header(stream, ciff.Header(1, 1, 1, 1, 1, 9, 9.0, "x"))
        ciff.write_postings_list(
            stream, ciff.PostingsList("t", 3, 65836, np.array([5, 200, 2**30]), np.array([1, 300, 65535]))
        )
        ciff.write_doc_record(stream, ciff.DocRecord(0, "d", 9))
    header, postings, record = ciff.read(tmp_path / "x.ciff")
    assert header.average_doclength == 9.0 and record == (0, "d", 9)
    assert postings.documents.tolist() == [5, 200, 2**30] and postings.impacts.tolist() == [1, 300, 65535]


def small(path: Path, postings: bytes | None = None, **changes: int) -> Path:
    """A file of one list, with its bytes or some of its numbers replaced."""
    found = ciff.PostingsList("t", 2, 5, np.array([0, 1]), np.array([2, 3]))._replace(**changes)
    with open(path, "wb") as stream:
        ciff.write_header(stream, ciff.Header(1, 1, 2, 1, 2, 5, 2.5, "x"))
        if postings is None:
            ciff.write_postings_list(stream, found)
        else:
            ciff._write_message(stream, postings)
        ciff.write_doc_record(stream, ciff.DocRecord(0, "a", 2))
        ciff.write_doc_record(stream, ciff.DocRecord(1, "b", 3))
    return path


def test_a_ciff_file_with_any_byte_changed_is_read_or_one_line(tmp_path):
    path = small(tmp_path / "x.ciff")
    plain, refused = path.read_bytes(), 0
    for at in range(len(plain)):
        for byte in {0, 0x7F, 0x80, 0xFF, *(plain[at] ^ 1 << bit for bit in range(8))} - {plain[at]}:
            path.write_bytes(plain[:at] + bytes([byte]) + plain[at + 1 :])
            try:
                list(ciff.read(path))
            except DataError as error:
                assert str(path) in str(error) and "\n" not in str(error)
                refused += 1
    assert refused > len(plain)
    for size in range(len(plain)):
        path.write_bytes(plain[:size])
        with pytest.raises(DataError, match="not a whole CIFF"):
            list(ciff.read(path))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ({"df": 3}, "other postings than it counts"),
        ({"cf": 6}, "other postings than it counts"),
        ({"postings": b""}, None),
        ({"postings": bytes([0x08, 1, 0x10, 0, 0x18, 0])}, "field 1 is no text"),
        ({"postings": bytes([0x0A, 1, 116, 0x12, 1, 9, 0x18, 0])}, "field 2 is no number"),
        ({"postings": bytes([0x0A, 90, 116])}, "a text is cut"),
        ({"postings": b"\x22" + b"\xff" * 40 + b"\x01"}, "a number is too long"),
    ],
)
def test_what_a_ciff_reader_refuses(tmp_path, damage, says):
    path = small(tmp_path / "x.ciff", **damage)
    if says is None:  # a list of no term and nothing in it is one
        assert len(list(ciff.read(path))) == 4
        return
    with pytest.raises(DataError, match=says):
        list(ciff.read(path))


@pytest.mark.parametrize("start", [b"\xff" * 8 + b"\x7f", b"\xff" * 3000, b"\xff\xff\xff\xff\x7f"])
def test_a_size_beyond_the_file_is_not_tried(tmp_path, start):
    (tmp_path / "x.ciff").write_bytes(start + b"x" * 20)
    with pytest.raises(DataError, match="not a whole CIFF"):
        list(ciff.read(tmp_path / "x.ciff"))


def test_float_weights_are_what_the_impacts_stand_for(encoded, topics, tmp_path):
    folder, vectors = encoded
    assert (
        main(
            [
                "export",
                str(folder),
                "--format",
                "jsonl-float",
                "--topics",
                str(topics),
                "--output",
                str(tmp_path / "out"),
            ]
        )
        == 0
    )
    lines = [json.loads(line) for line in (tmp_path / "out" / "documents.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == list(vectors)
    for line in lines:
        assert line["vector"] == {term: impact * 5 / 256 for term, impact in vectors[line["id"]].items()}
    lines = [json.loads(line) for line in (tmp_path / "out" / "topics.jsonl").read_text().splitlines()]
    assert lines[0] == {"id": "1", "vector": {"zebra": 2 * 5 / 256, "t1": 5 / 256}}


@pytest.mark.parametrize("at", [3, 200, 2000, -2, "longer"])
def test_a_ciff_file_that_was_damaged_does_not_read_back(encoded, tmp_path, monkeypatch, at):
    plain = export._write_ciff

    def damaged(path, *given):
        plain(path, *given)
        data = bytearray(path.read_bytes())
        if at == "longer":
            data.append(0)
        else:
            data[at] ^= 1
        path.write_bytes(data)

    monkeypatch.setattr(export, "_write_ciff", damaged)
    with pytest.raises(DataError, match="does not read back|not a whole CIFF|goes on after"):
        export.export(encoded[0], tmp_path / "out", "ciff", bar=False)
    assert [path.name for path in tmp_path.iterdir()] == ["encoded"]


def test_a_damaged_file_of_weights_does_not_read_back(encoded, tmp_path, monkeypatch):
    monkeypatch.setattr(
        export.json, "dumps", lambda value, plain=json.dumps, **more: plain(value, **more).replace("5.8", "6.8")
    )
    with pytest.raises(DataError, match="does not read back"):
        export.export(encoded[0], tmp_path / "out", "jsonl-float", bar=False)


def test_what_cannot_be_exported(encoded, topics, tmp_path):
    folder, _ = encoded
    (tmp_path / "there").mkdir()
    with pytest.raises(ConfigError, match="is there"):
        export.export(folder, tmp_path / "there", "ciff", bar=False)
    beside(topics).write_text(json.dumps(marker(FIXED["x100"])))
    with pytest.raises(ConfigError, match="was made by 100/1, the corpus by 256/5"):
        export.export(folder, tmp_path / "out", "ciff", topics, bar=False)
    (folder / "vectors" / "part-000001.jsonl").unlink()
    with pytest.raises(DataError, match="manifest.json lists a file that is missing: vectors/part-000001.jsonl"):
        export.export(folder, tmp_path / "out", "ciff", bar=False)
    write_manifest(folder, 300)
    with pytest.raises(DataError, match="200 documents, its manifest says 300"):
        export.export(folder, tmp_path / "out", "ciff", bar=False)
    (folder / "manifest.json").unlink()
    with pytest.raises(DataError, match="not encoded to the end"):
        export.export(folder, tmp_path / "out", "ciff", bar=False)
    with pytest.raises(ConfigError, match="does not say its scale"):
        (folder / SETTINGS).unlink()
        export.export(folder / "vectors", tmp_path / "out", "jsonl-float", bar=False)
    assert (
        export.export(folder / "vectors", tmp_path / "out", "jsonl-float", scale=(5.0, 256), bar=False)["documents"]
        == 200
    )


@pytest.mark.parametrize("kind", ["ciff", "jsonl-float"])
def test_a_part_of_one_other_digit_is_not_exported(encoded, tmp_path, kind):
    part = encoded[0] / "vectors" / "part-000000.jsonl"
    part.write_text(part.read_text().replace(": 127", ": 126", 1))
    with pytest.raises(DataError, match="part-000000.jsonl is not what manifest.json says was written.*--resume"):
        export.export(encoded[0], tmp_path / "out", kind, bar=False)
    part.with_name("copy.jsonl").write_text("")
    with pytest.raises(DataError, match="manifest.json does not list a file that is there: vectors/copy.jsonl"):
        export.export(encoded[0], tmp_path / "out", kind, bar=False)
    assert [path.name for path in tmp_path.iterdir()] == ["encoded"]


@pytest.mark.parametrize("kind", ["ciff", "jsonl-float"])
@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"id": "a", "vector": {"x": 2}}', "line 2: id 'a' has been used before"),
        ('{"id": "b", "vector": {"x": 2, "x": 3}}', "'x' comes twice"),
        (json.dumps({"id": "b", "vector": {"x": 2**40}}), "line 2: an impact is above 65,535"),
        (json.dumps({"id": "b", "vector": {"x": 10**400}}), "line 2: an impact is above 65,535"),
    ],
)
def test_vectors_without_a_manifest_that_cannot_be_exported(tmp_path, kind, line, says):
    (tmp_path / "vectors").mkdir()
    (tmp_path / "vectors" / "a.jsonl").write_text('{"id": "a", "vector": {"x": 1}}\n' + line + "\n")
    with pytest.raises(DataError, match=says):
        export.export(tmp_path / "vectors", tmp_path / "out", kind, scale=(5.0, 256), bar=False)


@pytest.mark.parametrize("text", ["{}", "[]", "null", '{"parts": 3}', "{", '{"documents": "many"}'])
def test_a_manifest_that_was_damaged_is_named(encoded, tmp_path, text):
    (encoded[0] / "manifest.json").write_text(text)
    with pytest.raises(DataError, match="manifest.json .*--resume"):
        export.export(encoded[0], tmp_path / "out", "ciff", bar=False)


def test_a_part_of_one_other_digit_is_not_indexed(encoded, tmp_path):
    part = encoded[0] / "vectors" / "part-000000.jsonl"
    part.write_text(part.read_text().replace(": 127", ": 126", 1))
    with pytest.raises(DataError, match="part-000000.jsonl is not what manifest.json says was written"):
        indexing.build(encoded[0], tmp_path / "index", lambda said: None)


def test_names_that_the_system_refuses_are_one_line(encoded, tmp_path):
    long = tmp_path / ("x" * 300)
    for make in (
        lambda: export.export(long, tmp_path / "out", "ciff", bar=False),
        lambda: export.export(encoded[0], long, "ciff", bar=False),
        lambda: export.export(encoded[0], tmp_path / "out", "ciff", long, bar=False),
        lambda: indexing.build(long, tmp_path / "index", lambda said: None),
    ):
        with pytest.raises((ConfigError, DataError)) as caught:
            make()
        assert "x" * 300 in str(caught.value) and "\n" not in str(caught.value)
