"""An encoded corpus, and topics, in the forms that other engines read; each file is read back and compared before it counts.

ciff
    documents.ciff, an inverted index of impacts (ciff.py), for PISA, BMP and others that convert CIFF, and topics.tsv (query id,
    tab, terms repeated impact times).
jsonl-float
    documents.jsonl and topics.jsonl, one {"id", "vector": {term: weight}} a line, for Seismic and vector databases. A weight is
    impact * weight_range / quant_range: what the impact stands for, not what the model computed before it was rounded.

An inverted index of more postings than memory holds is made in runs on the disk, beside the output.
"""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from pyserini_rescale.collections import json_object, read_lines
from pyserini_rescale.encode import ciff
from pyserini_rescale.encode.folder import check_parts, manifest_of, vectors_of
from pyserini_rescale.encode.marker import topics_marker
from pyserini_rescale.encode.quantize import quantize, same_scale
from pyserini_rescale.encode.topics import read_encoded
from pyserini_rescale.encode.vectors import read_distinct
from pyserini_rescale.errors import ConfigError, DataError
from pyserini_rescale.files import exists, write_json, written_folder

POSTINGS_IN_A_RUN = 2**25
"""Postings held in memory at a time, 12 bytes each and as much again while they are sorted."""
DESCRIPTION = "impacts of learned sparse vectors, exported by pyserini-rescale"


def export(
    encoded: Path,
    output: Path,
    kind: str,
    topics: Path | None = None,
    scale: tuple[float, int] | None = None,
    bar: bool = True,
) -> dict[str, Any]:
    """Write the folder ``output``, whole or not at all; return what is in it, as export.json says too.

    encoded: a folder of an encoded corpus, or of files of vectors. topics: what ``encode topics`` wrote. scale: for vectors
    without a manifest, (weight_range, quant_range).

    Raises ConfigError (an output that is there, topics of another scale), DataError (vectors; a file that does not read back).
    """
    if exists(output):
        raise ConfigError(f"--output {output} is there: name a new folder")
    manifest = manifest_of(encoded)
    if manifest is not None:
        scale = manifest["quantizer"]["weight_range"], manifest["quantizer"]["quant_range"]
    queries = _topics(topics, scale)
    vectors = vectors_of(encoded)
    if manifest is not None:
        check_parts(vectors, manifest)
    with written_folder(output) as aside:
        aside.mkdir()
        documents = KINDS[kind](vectors, queries, aside, scale, bar)
        if manifest is not None and documents != manifest["documents"]:
            raise DataError(f"{vectors} holds {documents:,} documents, its manifest says {manifest['documents']:,}")
        facts = {"format": kind, "documents": documents, "topics": len(queries), "scale": scale}
        write_json(aside / "export.json", facts)
    return facts


def _topics(path: Path | None, scale: tuple[float, int] | None) -> dict[str, dict[str, int]]:
    if path is None:
        return {}
    said = topics_marker(path)
    if said is not None and scale is not None:
        made = said["quantizer"]["weight_range"], said["quantizer"]["quant_range"]
        if not same_scale(made, scale):
            raise ConfigError(
                f"{path} was made by {made[1]}/{made[0]:g}, the corpus by {scale[1]}/{scale[0]:g}: encode topics --like"
            )
    return read_encoded(path)


# JSON lines of weights


def _export_float(
    vectors: Path, queries: dict[str, dict[str, int]], folder: Path, scale: tuple[float, int] | None, bar: bool
) -> int:
    if scale is None:
        raise ConfigError(f"{vectors} does not say its scale: name the model that made it by --encoder")
    streams: list[tuple[str, Callable[[], Iterable[tuple[str, dict[str, int]]]]]] = [
        ("documents.jsonl", lambda: ((name, vector) for _, name, vector in read_distinct(vectors)))
    ]
    if queries:
        streams.append(("topics.jsonl", queries.items))
    numbers = []
    for file, make in streams:
        with open(folder / file, "w", encoding="utf-8", newline="\n") as stream:
            for name, vector in tqdm(make(), desc=f"writing {file}", unit=" vectors", disable=not bar):
                weights = {term: impact * scale[0] / scale[1] for term, impact in vector.items()}
                stream.write(json.dumps({"id": name, "vector": weights}) + "\n")
        numbers.append(_read_float(folder / file, make(), scale))
    return numbers[0]


def _read_float(path: Path, wanted: Iterable[tuple[str, dict[str, int]]], scale: tuple[float, int]) -> int:
    """Return how many vectors a file holds; raise DataError unless they are ``wanted``, quantised again."""
    count = 0
    for (where, line), (name, vector) in zip(read_lines(path), wanted, strict=True):
        found = json_object(line, where)
        weights = np.array(list(found["vector"].values()), dtype=np.float64)
        impacts = dict(zip(found["vector"], quantize(weights, *scale).tolist(), strict=True))
        if found["id"] != name or impacts != vector:
            raise DataError(f"{where} does not read back as the vector of {name}")
        count += 1
    return count


# CIFF


class _Written(NamedTuple):
    """What was put into an inverted index: compared with what is read out of it. lengths: sum of impacts by document."""

    ids: list[str]
    lengths: np.ndarray
    postings: int
    mixed: int


def _export_ciff(
    vectors: Path, queries: dict[str, dict[str, int]], folder: Path, scale: tuple[float, int] | None, bar: bool
) -> int:
    runs = folder / "runs"
    runs.mkdir()
    terms: dict[str, int] = {}
    written = _write_runs(
        tqdm(read_distinct(vectors), desc="inverting", unit=" documents", disable=not bar), terms, runs
    )
    _write_ciff(folder / "documents.ciff", terms, written, runs, bar)
    shutil.rmtree(runs)
    _read_ciff(folder / "documents.ciff", terms, written)
    if queries:
        lines = [
            f"{name}\t{' '.join(term for term, impact in vector.items() for _ in range(impact))}\n"
            for name, vector in queries.items()
        ]
        (folder / "topics.tsv").write_text("".join(lines), encoding="utf-8")
    return len(written.ids)


def _write_runs(vectors: Iterable[tuple[str, str, dict[str, int]]], terms: dict[str, int], folder: Path) -> _Written:
    """Write runs of postings sorted by term and document, and number the terms as they come."""
    ids: list[str] = []
    lengths: list[int] = []
    parts: list[np.ndarray] = []
    held = postings = mixed = 0
    for _, name, vector in vectors:
        part = np.empty((3, len(vector)), dtype=np.int32)
        part[0] = [terms.setdefault(term, len(terms)) for term in vector]
        part[1], part[2] = len(ids), list(vector.values())
        parts.append(part)
        held += len(vector)
        ids.append(name)
        lengths.append(sum(vector.values()))
        if held >= POSTINGS_IN_A_RUN:
            mixed += _write_run(folder, parts)
            postings, held, parts = postings + held, 0, []
    mixed += _write_run(folder, parts)
    return _Written(ids, np.array(lengths, dtype=np.int64), postings + held, mixed % 2**64)


def _write_run(folder: Path, parts: list[np.ndarray]) -> int:
    run = np.concatenate([np.empty((3, 0), dtype=np.int32), *parts], axis=1)
    run = np.ascontiguousarray(run[:, np.argsort(run[0], kind="stable")])  # documents come in order already
    np.save(folder / f"{len(list(folder.iterdir())):06d}.npy", run)
    return _mix(run[0], run[1], run[2])


def _mix(terms: np.ndarray, documents: np.ndarray, impacts: np.ndarray) -> int:
    """Return a number that depends on every posting and not on their order."""
    value = terms.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) ^ documents.astype(np.uint64) * np.uint64(
        0xC2B2AE3D27D4EB4F
    )
    value = (value ^ value >> np.uint64(29)) * np.uint64(0xBF58476D1CE4E5B9) + impacts.astype(np.uint64)
    return int((value * (value >> np.uint64(32) | np.uint64(1))).sum(dtype=np.uint64))


def _write_ciff(path: Path, terms: dict[str, int], written: _Written, runs: Path, bar: bool) -> None:
    files = [np.load(file, mmap_mode="r") for file in sorted(runs.iterdir())]
    total = int(written.lengths.sum())
    header = ciff.Header(
        1,
        len(terms),
        len(written.ids),
        len(terms),
        len(written.ids),
        total,
        total / max(1, len(written.ids)),
        DESCRIPTION,
    )
    with open(path, "wb") as stream:
        ciff.write_header(stream, header)
        for term in tqdm(sorted(terms, key=str.encode), desc="writing", unit=" terms", disable=not bar):
            found = [_of_term(run, terms[term]) for run in files]
            documents, impacts = (np.concatenate([part[row] for part in found]) for row in (1, 2))
            ciff.write_postings_list(
                stream, ciff.PostingsList(term, len(documents), int(impacts.sum(dtype=np.int64)), documents, impacts)
            )
        for number, name in enumerate(written.ids):
            ciff.write_doc_record(stream, ciff.DocRecord(number, name, int(written.lengths[number])))


def _of_term(run: np.ndarray, number: int) -> np.ndarray:
    start, end = np.searchsorted(run[0], [number, number + 1])
    return run[:, start:end]


def _read_ciff(path: Path, terms: dict[str, int], written: _Written) -> None:
    """Raise DataError unless the file holds exactly the postings and documents that were written."""
    wrong = next(_differences(ciff.read(path), terms, written), None)
    if wrong is not None:
        raise DataError(f"{path} does not read back: {wrong}")


def _differences(parts: Iterator[Any], terms: dict[str, int], written: _Written) -> Iterator[str]:
    header = next(parts)
    if (header.postings_lists, header.doc_records) != (len(terms), len(written.ids)):
        yield "its header has other counts"
    lengths = np.zeros(len(written.ids), dtype=np.int64)
    postings = mixed = seen = 0
    for part in parts:
        if isinstance(part, ciff.DocRecord):
            if part != (seen, written.ids[seen], lengths[seen]):
                yield f"document {part.number} is another"
            seen += 1
            continue
        if part.term not in terms or part.documents.max(initial=0) >= len(written.ids):
            yield f"the list of {part.term!r} is another"
            return
        np.add.at(lengths, part.documents, part.impacts)
        postings += len(part.documents)
        mixed += _mix(np.full(len(part.documents), terms[part.term]), part.documents, part.impacts)
    if postings != written.postings or mixed % 2**64 != written.mixed or not np.array_equal(lengths, written.lengths):
        yield "its postings are others"


KINDS: dict[str, Callable[..., int]] = {"ciff": _export_ciff, "jsonl-float": _export_float}
