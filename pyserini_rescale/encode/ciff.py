"""The Common Index File Format (arXiv 2003.08276; github.com/osirrc/ciff): an inverted index as length-delimited protobufs.

One Header, then a PostingsList per term in the order of their bytes, then a DocRecord per document:

    Header       1 version  2 num_postings_lists  3 num_doc_records  4 total_postings_lists  5 total_docs
                 6 total_terms_in_collection  7 average_doclength (double)  8 description
    PostingsList 1 term  2 df  3 cf  4 repeated Posting
    Posting      1 docid, as the difference to the one before  2 tf
    DocRecord    1 docid  2 collection_docid  3 doclength

tf is the impact, doclength a document's sum of impacts. Everything but the double is a varint or bytes, so that this is written
without a protobuf compiler; NumPy makes a list's postings, of which there may be thousands of millions. Which vectors are
exported, and the check, are in export.py.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from pyserini_rescale.errors import DataError, one_line

_DOUBLE = 1  # wire types
_BYTES = 2


class Header(NamedTuple):
    """The fields of the message."""

    version: int
    postings_lists: int
    doc_records: int
    total_postings_lists: int
    total_docs: int
    total_terms: int
    average_doclength: float
    description: str


class PostingsList(NamedTuple):
    """documents: numbers, ascending; impacts: as many."""

    term: str
    df: int
    cf: int
    documents: np.ndarray
    impacts: np.ndarray


class DocRecord(NamedTuple):
    number: int
    id: str
    length: int


# Writing


def write_header(stream: BinaryIO, header: Header) -> None:
    numbers = header[:6]
    body = b"".join(_number_field(field, value) for field, value in enumerate(numbers, start=1))
    body += _key(7, _DOUBLE) + struct.pack("<d", header.average_doclength) + _text_field(8, header.description)
    _write_message(stream, body)


def write_postings_list(stream: BinaryIO, found: PostingsList) -> None:
    gaps = np.diff(found.documents, prepend=0)
    body = _text_field(1, found.term) + _number_field(2, found.df) + _number_field(3, found.cf)
    _write_message(stream, body + postings_bytes(gaps, found.impacts))


def write_doc_record(stream: BinaryIO, found: DocRecord) -> None:
    _write_message(stream, _number_field(1, found.number) + _text_field(2, found.id) + _number_field(3, found.length))


def postings_bytes(gaps: np.ndarray, impacts: np.ndarray) -> bytes:
    """Return the field 4 of a PostingsList for postings with these differences of numbers and impacts."""
    inner = (
        2 + _varint_sizes(gaps) + _varint_sizes(impacts)
    )  # two keys of a byte; below 128, so that its own size is a byte
    starts = np.concatenate([[0], np.cumsum(inner + 2)])
    result = np.zeros(starts[-1], dtype=np.uint8)
    at = starts[:-1].copy()
    for values in (
        np.full(len(gaps), 4 << 3 | _BYTES),
        inner,
        np.full(len(gaps), 1 << 3),
        gaps,
        np.full(len(gaps), 2 << 3),
        impacts,
    ):
        at = _put_varints(result, at, values)
    return result.tobytes()


def _varint_sizes(values: np.ndarray) -> np.ndarray:
    """Return how many bytes each number takes."""
    return sum(((values >= 1 << 7 * more).astype(np.int64) for more in range(1, 5)), np.ones(len(values), np.int64))


def _put_varints(target: np.ndarray, at: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Write each number at its place; return the places after them."""
    values, sizes = values.astype(np.int64), _varint_sizes(values)
    for place in range(int(sizes.max(initial=0))):
        some = sizes > place
        more = np.where(sizes[some] > place + 1, 0x80, 0)
        target[at[some] + place] = (values[some] >> 7 * place) & 0x7F | more
    return at + sizes


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _key(field: int, wire_type: int = 0) -> bytes:
    return _varint(field << 3 | wire_type)


def _number_field(field: int, value: int) -> bytes:
    return _key(field) + _varint(value)


def _text_field(field: int, text: str) -> bytes:
    data = text.encode("utf-8")
    return _key(field, _BYTES) + _varint(len(data)) + data


def _write_message(stream: BinaryIO, body: bytes) -> None:
    stream.write(_varint(len(body)) + body)


# Reading back


def read(path: Path) -> Iterator[Header | PostingsList | DocRecord]:
    """Yield the header, the postings lists and the document records of a file; raise DataError where it is not whole.

    Numbers of documents in postings come out added up again.
    """
    try:
        with open(path, "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            header = _header(_fields(_message(stream, size)))
            yield header
            for _ in range(header.postings_lists):
                yield _postings_list(_message(stream, size))
            for _ in range(header.doc_records):
                yield _doc_record(_fields(_message(stream, size)))
            if stream.read(1):
                raise DataError(f"{path} goes on after what its header counts")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {one_line(error)}") from None
    except (EOFError, LookupError, ValueError, TypeError, ArithmeticError, struct.error) as error:
        raise DataError(f"{path} is not a whole CIFF file: {one_line(error)}") from None


def _message(stream: BinaryIO, most: int) -> bytes:
    """Return the next message; a size beyond ``most``, that of the file, is not tried, since memory may not hold it."""
    size = shift = 0
    while True:
        byte = stream.read(1)
        if not byte:
            raise EOFError("it ends too early")
        size |= (byte[0] & 0x7F) << shift
        shift += 7
        if byte[0] < 0x80:
            break
        _check_shift(shift)
    if size > most:
        raise EOFError("it ends in the middle of a message")
    body = stream.read(size)
    if len(body) < size:
        raise EOFError("it ends in the middle of a message")
    return body


def _check_shift(shift: int) -> None:
    if shift >= 63:
        raise ValueError("a number is too long")


def _read_varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        _check_shift(shift)


def _field(body: bytes, at: int) -> tuple[int, object, int]:
    """Return (field, value, the place after it)."""
    key, at = _read_varint(body, at)
    if key & 7 == 0:
        value, at = _read_varint(body, at)
        return key >> 3, value, at
    if key & 7 == _DOUBLE:
        return key >> 3, struct.unpack_from("<d", body, at)[0], at + 8
    if key & 7 == _BYTES:
        size, at = _read_varint(body, at)
        if size > len(body) - at:
            raise ValueError("a text is cut")
        return key >> 3, body[at : at + size], at + size
    raise ValueError(f"wire type {key & 7}")


def _fields(body: bytes) -> dict[int, object]:
    found, at = {}, 0
    while at < len(body):
        field, value, at = _field(body, at)
        found[field] = value
    return found


def _header(fields: dict[int, object]) -> Header:
    version, lists, records, all_lists, all_docs, terms = (_number(fields, field) for field in range(1, 7))
    average = fields.get(7, 0.0)
    if not isinstance(average, float):
        raise ValueError("the mean length is no double")
    return Header(version, lists, records, all_lists, all_docs, terms, average, _string(fields, 8))


def _doc_record(fields: dict[int, object]) -> DocRecord:
    return DocRecord(_number(fields, 1), _string(fields, 2), _number(fields, 3))


def _number(fields: dict[int, object], field: int) -> int:
    value = fields.get(field, 0)
    if not isinstance(value, int):
        raise ValueError(f"field {field} is no number")
    return value


def _string(fields: dict[int, object], field: int) -> str:
    value = fields.get(field, b"")
    if not isinstance(value, bytes):
        raise ValueError(f"field {field} is no text")
    return value.decode()


def _postings_list(body: bytes) -> PostingsList:
    fields: dict[int, object] = {}
    at = 0
    while at < len(body) and body[at] != 4 << 3 | _BYTES:  # in the order of their numbers, as every writer does
        field, value, at = _field(body, at)
        fields[field] = value
    numbers = _varints(body[at:]).reshape(-1, 6)  # key, size, key, difference, key, impact
    sizes = 2 + _varint_sizes(numbers[:, 3]) + _varint_sizes(numbers[:, 5])
    keys = numbers[:, [0, 2, 4]] == [4 << 3 | _BYTES, 1 << 3, 2 << 3]
    if not (keys.all() and np.array_equal(numbers[:, 1], sizes)):
        raise ValueError("a posting has other fields")
    found = PostingsList(
        _string(fields, 1), _number(fields, 2), _number(fields, 3), np.cumsum(numbers[:, 3]), numbers[:, 5]
    )
    if (found.df, found.cf) != (len(found.documents), int(found.impacts.sum())):
        raise ValueError(f"the list of {found.term!r:.80} has other postings than it counts")
    if len(numbers) and (numbers[:, [3, 5]].max() >= 2**31 or numbers[1:, 3].min(initial=1) < 1):
        raise ValueError(f"the list of {found.term!r:.80} is not in the order of its documents")
    return found


def _varints(data: bytes) -> np.ndarray:
    """Return all numbers of a run of varints."""
    found = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(found < 0x80)
    if len(found) and (not len(ends) or ends[-1] != len(found) - 1):
        raise ValueError("a number is cut")
    starts = np.concatenate([[0], ends[:-1] + 1]).astype(np.int64) if len(ends) else np.zeros(0, dtype=np.int64)
    values = np.zeros(len(ends), dtype=np.int64)
    _check_shift(7 * int((ends - starts).max(initial=0)))
    for place in range(int((ends - starts).max(initial=-1)) + 1):
        some = ends - starts >= place
        values[some] |= (found[starts[some] + place].astype(np.int64) & 0x7F) << 7 * place
    return values
