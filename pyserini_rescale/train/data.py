"""Training triples (query, positive, negative): read, checked, shuffled and collated.

Sources are a data set of the Hugging Face Hub (the paper's, Section 4.1) or local JSONL, JSON, TSV, CSV and Parquet
files. Both end as a memory-mapped ``datasets.Dataset`` in the cache of ``datasets`` (HF_DATASETS_CACHE), so that memory
stays flat whatever the number of rows. Local files are read by a builder of our own: those of ``datasets`` turn
numbers into strings and strings that look like dates into dates, skip blank lines, and cannot say which line is bad.

No row is dropped or changed in silence: a bad one stops the loading with its file and line, or with ``skip_bad`` is
counted and said. Mining negatives is in mine.py; losses are not in this module.
"""

import contextlib
import csv
import dataclasses
import gzip
import hashlib
import itertools
import json
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch.utils.data import Sampler
from tqdm import tqdm

from pyserini_rescale.errors import ConfigError, DataError, RescaleError, one_line
from pyserini_rescale.model.splade import pad
from pyserini_rescale.train.sources import find_files

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

KEYS = ("query", "positive", "negative")

# Part of the cache's name: to be raised whenever the same files would become other rows.
_FORM = 1
_ROWS_AT_ONCE = 1_000
_ROWS_CHECKED_AT_ONCE = 10_000
_PLACES_SAID = 3
_PROBLEM = "problem"
_NO_VALUES = (None, None, None)
_BOM = b"\xef\xbb\xbf"

# What a reader yields for one row of a file: its number from 1 (the line, where lines are rows), and either the three
# values, of any type still, or what is wrong with the row.
_Row = tuple[int, Sequence[Any] | str]


class Source(Protocol):
    """The settings that ``load_triples`` needs; train/config.py's DataConfig has them."""

    @property
    def hub(self) -> str | None: ...
    @property
    def subset(self) -> str | None: ...
    @property
    def split(self) -> str: ...
    @property
    def files(self) -> Sequence[str]: ...
    @property
    def columns(self) -> Mapping[Any, str]: ...
    @property
    def rows(self) -> int | None: ...
    @property
    def limit(self) -> int | None: ...
    @property
    def skip_bad(self) -> bool: ...


def load_triples(data: Source, say: Callable[[str], None]) -> datasets.Dataset:
    """Return the triples: a memory-mapped data set with exactly the string columns query, positive and negative.

    data.hub, data.subset, data.split: a data set of the Hub. data.files: local files or glob patterns instead
    (a pattern's files in order of name). data.columns: the source's names of the three columns. A TSV file without
    a header has them in this order; CSV always has a header. data.limit: look at the first so many rows only.
    data.rows: how many rows the source should have; another number is said, where it is known (files of which only
    the first rows are read are not counted). data.skip_bad: leave bad rows out, and say how many and the first places.

    A row is bad if a column is missing, null, not a string, empty or white space only, holds half a surrogate pair or
    is not UTF-8, or if the line is no JSON object or has another number of columns.

    Raises DataError (a bad row; no rows; files or a Hub data set that cannot be read), ConfigError (unknown kinds of
    files, columns that cannot be meant).
    """
    names = _source_names(dict(data.columns))  # a mapping, or a pydantic model with the three as fields
    if (data.hub is None) == (not data.files):
        raise ConfigError("training data come either from data.hub or from data.files: give exactly one of the two")
    if data.hub is not None:
        return _from_hub(data, names, say)
    return _from_files(data, names, say)


def _source_names(columns: Mapping[str, str]) -> tuple[str, str, str]:
    """Return the source's names of query, positive and negative."""
    if set(columns) != set(KEYS):
        raise ConfigError(f"data.columns has the keys {', '.join(columns) or 'none'}: it needs {', '.join(KEYS)}")
    query, positive, negative = (columns[key] for key in KEYS)
    if len({query, positive, negative}) < 3:
        raise ConfigError(f"data.columns names one column twice ({query}, {positive}, {negative})")
    return query, positive, negative


def _finish(
    found: datasets.Dataset,
    problems: list[tuple[int, str]],
    name: str,
    known: int | None,
    data: Source,
    say: Callable[[str], None],
) -> datasets.Dataset:
    """Say what was noticed, and return ``found`` without the rows in ``problems``: (row from 0, message)."""
    if known is not None and data.rows is not None and known != data.rows:
        say(f"warning: {name} has {known:,} rows where data.rows expects {data.rows:,}")
    if not len(found):
        raise _no_rows(name)
    if not problems:
        return found
    first = "; ".join(message for _, message in problems[:_PLACES_SAID])
    if len(problems) == len(found):
        raise DataError(f"none of the {len(found):,} rows of {name} can be used ({first})")
    say(f"left out {len(problems):,} bad of {len(found):,} rows of {name}, the first: {first}")
    keep = np.ones(len(found), dtype=bool)
    keep[[row for row, _ in problems]] = False
    return found.select(np.flatnonzero(keep))


def _no_rows(name: str) -> DataError:
    return DataError(f"{name} holds no rows: there is nothing to train on")


def _bad(message: str) -> DataError:
    return DataError(f"{message}; correct it, or leave bad rows out with --skip-bad (data.skip_bad)")


# What makes a value bad, column by column


def _content_problems(columns: Sequence[pa.Array]) -> dict[int, str]:
    """Return row from 0 -> what is wrong with it, of three string arrays in the order of KEYS."""
    problems: dict[int, str] = {}
    for key, column in zip(KEYS, columns, strict=True):
        try:
            column.validate(full=True)  # Parquet may hold anything as strings
        except pa.ArrowInvalid:
            values = column.cast(pa.large_binary()).to_pylist()
            texts = [None if value is None else _decoded(value) for value in values]
            for row, (value, text) in enumerate(zip(values, texts, strict=True)):
                if value is not None and text is None:
                    problems.setdefault(row, f"{key} is not UTF-8")
            column = pa.array(texts, pa.large_string())
        unusable = pc.fill_null(pc.or_(pc.equal(pc.binary_length(column), 0), pc.utf8_is_space(column)), True)
        if pc.any(unusable).as_py():
            for row in np.flatnonzero(unusable.to_numpy(zero_copy_only=False)).tolist():
                value = column[row].as_py()
                kind = "null" if value is None else "empty" if not value else "white space"
                problems.setdefault(row, f"{key} is {kind}")
    return problems


def _decoded(value: bytes) -> str | None:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _value_problem(value: Any) -> str | None:
    """Return why a value cannot become an Arrow string; None for strings and for None, which Arrow tells."""
    if value is None:
        return None
    if not isinstance(value, str):
        return f"is not a string but {type(value).__name__}"
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:  # JSON can spell it; tokenizers and files cannot hold it
        return "holds half a surrogate pair, which is no character"
    return None


def _table(rows: Sequence[Sequence[Any] | str]) -> tuple[pa.Table, dict[int, str]]:
    """Return the rows as a table, bad ones all null, and row from 0 -> what is wrong with it."""
    problems = {number: row for number, row in enumerate(rows) if isinstance(row, str)}
    columns = []
    values_of_rows = (_NO_VALUES if isinstance(row, str) else row for row in rows)
    for key, values in zip(KEYS, zip(*values_of_rows, strict=True), strict=True):
        try:
            columns.append(pa.array(values, pa.string()))
        except (pa.ArrowException, UnicodeEncodeError, TypeError, ValueError):
            reasons = [_value_problem(value) for value in values]
            for number, reason in enumerate(reasons):
                if reason is not None:
                    problems.setdefault(number, f"{key} {reason}")
            pairs = zip(values, reasons, strict=True)
            columns.append(pa.array([None if reason else value for value, reason in pairs], pa.string()))
    problems = {**_content_problems(columns), **problems}
    return pa.table(dict(zip(KEYS, columns, strict=True))), problems


def _string_columns(table: pa.Table, names: Sequence[str], where: str) -> list[pa.Array]:
    """Return the three named columns of an Arrow table as arrays of strings; raise where they cannot be that."""
    missing = [name for name in names if name not in table.column_names]
    if missing:
        known = one_line(", ".join(table.column_names)) or "none"
        raise DataError(f"{where} has no column {missing[0]} (it has: {known}): name them in data.columns")
    found = []
    for name in names:
        column = table.column(name)
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        view = getattr(pa.types, "is_string_view", lambda _: False)(kind)
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind) or view):
            raise DataError(f"{where} row 1: the column {name} is not strings but {column.type}")
        if column.type not in (pa.string(), pa.large_string()):
            column = column.cast(pa.large_string())
        found.append(
            column.chunk(0)
            if column.num_chunks == 1
            else pa.concat_arrays(column.chunks or [pa.array([], column.type)])
        )
    return found


# The Hub


def _from_hub(data: Source, names: Sequence[str], say: Callable[[str], None]) -> datasets.Dataset:
    name = f"{data.hub}{f' ({data.subset})' if data.subset else ''}, split {data.split}"
    try:
        found = datasets.load_dataset(data.hub, data.subset, split=data.split)
    except ValueError as error:  # an unknown subset or split: the message names those that there are
        raise DataError(f"{name} cannot be loaded: {one_line(error)[:600]}") from error
    except Exception as error:  # whatever httpx, requests, fsspec or the builder let through
        raise DataError(
            f"{name} cannot be loaded ({type(error).__name__}: {one_line(error)[:300]}): is the id right? Without "
            "internet, load it on a machine that has it, copy that machine's HF_DATASETS_CACHE folder, name the copy by "
            "HF_DATASETS_CACHE and set HF_HUB_OFFLINE=1; or give local files as data.files"
        ) from error
    known = len(found)
    if data.limit is not None and data.limit < known:
        found = found.select(range(data.limit))
    problems: list[tuple[int, str]] = []
    arrow = found.with_format("arrow")
    if len(found) == 0:
        _string_columns(arrow[:], names, name)
    starts = range(0, len(found), _ROWS_CHECKED_AT_ONCE)
    batches = arrow.iter(batch_size=_ROWS_CHECKED_AT_ONCE)
    with tqdm(total=len(found), desc="checking triples", unit=" rows", disable=len(found) < 1_000_000) as bar:
        for start, table in zip(starts, batches, strict=True):
            for row, problem in sorted(_content_problems(_string_columns(table, names, name)).items()):
                message = f"{name}, row {start + row + 1}: {problem}"
                if not data.skip_bad:
                    raise _bad(message)
                problems.append((start + row, message))
            bar.update(len(table))
    found = found.select_columns(list(names))
    # Through names that no source has, since a data set may call its positives "query".
    found = found.rename_columns({name: f"\0{key}" for key, name in zip(KEYS, names, strict=True)})
    found = found.rename_columns({f"\0{key}": key for key in KEYS})
    return _finish(found, problems, name, known, data, say)


# Local files


def _from_files(data: Source, names: Sequence[str], say: Callable[[str], None]) -> datasets.Dataset:
    files = find_files(data.files)
    name = str(files[0]) if len(files) == 1 else f"the {len(files)} files of data.files"
    state = [(os.path.abspath(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    identity = json.dumps([_FORM, state, list(names), data.limit, data.skip_bad])
    try:
        builder = _TripleFiles(
            dataset_name="triples",
            config_id=f"triples-{hashlib.sha256(identity.encode()).hexdigest()[:32]}",
            files=tuple(map(str, files)),
            names=tuple(names),
            limit=data.limit,
            skip_bad=data.skip_bad,
        )
        builder.download_and_prepare()
        if not builder.info.splits["train"].num_examples:  # as_dataset would fail with a message about "instructions"
            raise _no_rows(name)
        found = builder.as_dataset(split="train")
    except datasets.exceptions.DatasetGenerationError as error:
        cause: BaseException = error
        while not isinstance(cause, RescaleError) and cause.__cause__ is not None:
            cause = cause.__cause__
        if isinstance(cause, RescaleError):
            raise cause from None
        raise DataError(f"{name} cannot be prepared: {one_line(cause)}") from error
    except OSError as error:
        raise DataError(
            f"{name} cannot be prepared ({one_line(error)}): HF_DATASETS_CACHE names a folder with more room"
        ) from error
    problems: list[tuple[int, str]] = []
    start = 0
    for chunk in found.data.column(_PROBLEM).chunks:
        if chunk.null_count < len(chunk):
            rows = np.flatnonzero(chunk.is_valid().to_numpy(zero_copy_only=False)).tolist()
            problems += [(start + row, chunk[row].as_py()) for row in rows]
        start += len(chunk)
    known = len(found) if data.limit is None else None
    return _finish(found.select_columns(list(KEYS)), problems, name, known, data, say)


@dataclasses.dataclass
class _TripleFilesConfig(datasets.BuilderConfig):
    files: tuple[str, ...] = ()
    names: tuple[str, ...] = KEYS
    limit: int | None = None
    skip_bad: bool = False


class _TripleFiles(datasets.ArrowBasedBuilder):
    """Local files as a data set with a fourth column: what is wrong with the row, null where nothing is.

    From ``datasets`` come the cache, the lock between processes, writing aside and renaming, and the progress bar.
    """

    BUILDER_CONFIG_CLASS = _TripleFilesConfig

    def _info(self) -> datasets.DatasetInfo:
        columns = {name: datasets.Value("string") for name in (*KEYS, _PROBLEM)}
        return datasets.DatasetInfo(features=datasets.Features(columns))

    def _split_generators(self, dl_manager: Any) -> list[datasets.SplitGenerator]:
        return [datasets.SplitGenerator(name="train", gen_kwargs={})]

    def _generate_tables(self) -> Iterator[tuple[tuple[int, int], pa.Table]]:
        left = self.config.limit
        for file_number, file in enumerate(self.config.files):
            for batch_number, table in enumerate(_tables(Path(file), self.config.names, left, self.config.skip_bad)):
                left = None if left is None else left - len(table)
                yield (file_number, batch_number), table
            if left == 0:
                return


def _tables(path: Path, names: Sequence[str], limit: int | None, skip_bad: bool) -> Iterator[pa.Table]:
    """Yield the first ``limit`` rows of a file as tables of KEYS and "problem"; raise on a bad row unless skipped."""
    if path.name.lower().endswith(".parquet"):
        unit, tables = "row", _parquet_tables(path, names)
    else:
        unit, tables = _text_tables(path, names)
    left = limit
    for numbers, table, problems in tables:
        if left is not None:
            table = table.slice(0, left)
            left -= len(table)
        messages: list[str | None] = [None] * len(table)
        for row, problem in sorted(problems.items()):
            if row < len(table):
                messages[row] = f"{path} {unit} {numbers[row]}: {problem}"
                if not skip_bad:
                    raise _bad(cast(str, messages[row]))
        yield table.append_column(_PROBLEM, pa.array(messages, pa.string()))
        if left == 0:
            return


_Tables = Iterator[tuple[Sequence[int], pa.Table, dict[int, str]]]


def _parquet_tables(path: Path, names: Sequence[str]) -> _Tables:
    start = 0
    try:
        with pq.ParquetFile(path) as file:
            known = [name for name in names if name in file.schema_arrow.names]
            if len(known) < len(names):
                _string_columns(file.schema_arrow.empty_table(), names, str(path))
            for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=known):
                columns = _string_columns(pa.Table.from_batches([batch]), names, str(path))
                problems = _content_problems(columns)
                if problems:  # what is no UTF-8 must not reach the cache
                    columns = [_without(column, problems) for column in columns]
                table = pa.table({key: column.cast(pa.string()) for key, column in zip(KEYS, columns, strict=True)})
                yield range(start + 1, start + 1 + len(batch)), table, problems
                start += len(batch)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} cannot be read as Parquet after row {start}: {one_line(error)}") from None


def _without(column: pa.Array, problems: Mapping[int, str]) -> pa.Array:
    keep = np.ones(len(column), dtype=bool)
    keep[list(problems)] = False
    return pc.if_else(pa.array(keep), column, pa.scalar(None, column.type))


def _text_tables(path: Path, names: Sequence[str]) -> tuple[str, _Tables]:
    """Return what a row of this file is called ("line" or "row"), and its tables."""
    kind = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    if kind == "json" and _starts_an_array(path):
        return "row", _batches(_array_rows(path, names))
    readers = {"jsonl": _json_rows, "json": _json_rows, "tsv": _tsv_rows, "csv": _csv_rows}
    return "line", _batches(readers[kind](path, names))


def _batches(rows: Iterator[_Row]) -> _Tables:
    while batch := list(itertools.islice(rows, _ROWS_AT_ONCE)):
        yield [number for number, _ in batch], *_table([row for _, row in batch])


def _opened(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path) if path.suffix.lower() == ".gz" else open(path, "rb"))


def _raw_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (number from 1, line with its end) of a file; lines end at \\n only, as U+2028 is text."""
    number = 0
    try:
        with _opened(path) as stream:
            for number, raw in enumerate(stream, start=1):
                yield number, raw.removeprefix(_BOM) if number == 1 else raw
    except (OSError, EOFError, zlib.error) as error:  # gzip reports a cut file by EOFError
        raise DataError(f"{path} cannot be read after line {number}: {one_line(error)}") from None


def _lines(path: Path) -> Iterator[tuple[int, str | None]]:
    """Yield (number from 1, line without its end, None if it is not UTF-8)."""
    for number, raw in _raw_lines(path):
        yield number, _decoded(raw.removesuffix(b"\n").removesuffix(b"\r"))


def _json_rows(path: Path, names: Sequence[str]) -> Iterator[_Row]:
    for number, line in _lines(path):
        if line is None:
            yield number, "it is not UTF-8"
        elif not line.strip():
            yield number, "it is empty"
        else:
            try:
                yield number, _values(json.loads(line), names)
            except (ValueError, RecursionError) as error:
                yield number, f"it is not valid JSON ({one_line(error)})"


def _values(found: Any, names: Sequence[str]) -> Sequence[Any] | str:
    if not isinstance(found, dict):
        return f"it is not a JSON object but {type(found).__name__}"
    try:
        return [found[name] for name in names]
    except KeyError as error:
        return f"it has no column {error.args[0]} (it has: {', '.join(found) or 'none'})"[:300]


def _starts_an_array(path: Path) -> bool:
    for _, line in _lines(path):
        if line is None or line.strip():
            return line is not None and line.lstrip().startswith("[")
    return False


def _array_rows(path: Path, names: Sequence[str]) -> Iterator[_Row]:
    """Yield the elements of a .json file that is one array; such a file is read at once."""
    try:
        with _opened(path) as stream:
            found = json.loads(stream.read().removeprefix(_BOM).decode("utf-8"))
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 ({one_line(error)}): convert the file") from None
    except (ValueError, RecursionError, OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} starts a JSON array, which cannot be read: {one_line(error)}") from None
    for number, element in enumerate(found, start=1):
        yield number, _values(element, names)


def _tsv_rows(path: Path, names: Sequence[str]) -> Iterator[_Row]:
    """Yield the lines of a TSV file: no quoting, every tab separates; a header is one that has the three names."""
    positions: Sequence[int] = ()
    width = 0
    for number, line in _lines(path):
        if line is None:
            yield number, "it is not UTF-8"
            continue
        values = line.split("\t")
        if not width:
            header = _header(values, names, path, number)
            positions, width = (header, len(values)) if header else ((0, 1, 2), 3)
            if header:
                continue
        if len(values) != width:
            yield number, f"it has {len(values)} column(s) where {width} are expected" if line else "it is empty"
        else:
            yield number, [values[position] for position in positions]


def _header(values: Sequence[str], names: Sequence[str], path: Path, number: int) -> tuple[int, ...] | None:
    """Return where the three columns are, or None if the first line of a TSV file is a row and the columns are ours."""
    known = [name for name in names if name in values]
    if len(known) == len(names) or (known and tuple(names) != KEYS) or len(known) > 1:
        return _positions(values, names, path, number)
    if tuple(names) != KEYS:
        raise DataError(
            f"{path} line {number} is not a header with the columns {', '.join(names)}: a file without a header has "
            "query, positive and negative in this order, and needs no data.columns"
        )
    return None


def _positions(header: Sequence[str], names: Sequence[str], path: Path, number: int) -> tuple[int, ...]:
    for name in names:
        if header.count(name) != 1:
            what = "twice" if name in header else "not"
            raise DataError(
                f"{path} line {number}: the header has the column {name} {what} (it has: {', '.join(header)[:200]}): "
                "name the columns in data.columns"
            )
    return tuple(header.index(name) for name in names)


class _CsvLines:
    """The lines of a file for the csv module; the number of the last one, and of the last that is not UTF-8."""

    def __init__(self, path: Path) -> None:
        self.lines = _raw_lines(path)
        self.number = 0
        self.undecodable: int | None = None

    def __iter__(self) -> Iterator[str]:
        for number, raw in self.lines:
            self.number = number
            line = _decoded(raw)
            if line is None:
                self.undecodable = number
                line = raw.decode("utf-8", errors="replace")  # its quotes still say where the row ends
            yield line


def _csv_rows(path: Path, names: Sequence[str]) -> Iterator[_Row]:
    """Yield the rows of a CSV file (quotes are ", a quoted value may have line ends), numbered by their first line."""
    source = _CsvLines(path)
    reader = csv.reader(source, strict=True)
    positions: Sequence[int] = ()
    width = 0
    while True:
        start = source.number + 1
        source.undecodable = None
        try:
            with _any_length():
                values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            # Within a quote that is not closed where it should be, the rows that follow cannot be told apart.
            if source.number > start or not width:
                raise DataError(
                    f"{path} line {start}: it is not valid CSV ({one_line(error)}), and what follows up to line "
                    f"{source.number} belongs to the same row: correct its quotes"
                ) from None
            yield start, f"it is not valid CSV ({one_line(error)})"
            continue
        if not width:
            positions, width = _positions(values, names, path, start), len(values)
        elif source.undecodable is not None:
            yield start, "it is not UTF-8" if source.number == start else f"line {source.undecodable} is not UTF-8"
        elif len(values) != width:
            yield start, f"it has {len(values)} column(s) where {width} are expected" if values else "it is empty"
        else:
            yield start, [values[position] for position in positions]


@contextlib.contextmanager
def _any_length() -> Iterator[None]:
    """Lift the csv module's limit of 131,072 characters for a value, which holds for the whole process."""
    before = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        csv.field_size_limit(before)


# Order


def order(rows: int, seed: int, epoch: int) -> np.ndarray:
    """Return the row numbers 0 to ``rows`` - 1 in the order of an epoch (int64): a pure function of its arguments.

    seed and epoch are 0 or more. The same numbers come from every process and after every resume; NumPy may change
    them in a later release, as it says of its generators.
    """
    # The epoch as a spawn key, not as a second word of entropy: (2**32, 0) and (0, 1) are the same words.
    sequence = np.random.SeedSequence(seed, spawn_key=(epoch,))
    return np.random.default_rng(sequence).permutation(rows)


class EpochSampler(Sampler[int]):
    """Yields the first ``length`` of ``order(rows, seed, epoch)`` (None: all), the same in every process.

    ``set_epoch`` chooses the epoch, 0 at first.
    """

    def __init__(self, rows: int, seed: int, length: int | None = None) -> None:
        if rows < 1:
            raise ConfigError(f"{rows} rows cannot be shuffled: 1 or more is needed")
        if seed < 0:
            raise ConfigError(f"seed {seed} cannot be used: it is 0 or more")
        self.rows = rows
        self.length = rows if length is None else length
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        numbers = order(self.rows, self.seed, self.epoch)[: self.length]
        for start in range(0, self.length, _ROWS_AT_ONCE):  # 26 M Python integers at once would take a gigabyte
            yield from numbers[start : start + _ROWS_AT_ONCE].tolist()


def fingerprint(triples: datasets.Dataset) -> str:
    """Return a checksum of triples: their number, and 1,024 of them evenly spread, the last among them."""
    count = len(triples)
    chosen = sorted({*(number * count // 1024 for number in range(1024)), count - 1})
    digest = hashlib.sha256(f"{count}".encode())
    for row in triples.select(chosen):
        digest.update(json.dumps([row[key] for key in KEYS]).encode())
    return digest.hexdigest()


# Batches


class Collator:
    """Rows to token ids, cut and padded as the encoders do it (encode/encoder.py).

    query_length, document_length: tokens, special ones included; whether the model has that many positions is the
    caller's to check. Raises ConfigError where a length leaves no room for text.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", query_length: int, document_length: int) -> None:
        reserved = tokenizer.num_special_tokens_to_add(pair=False)
        for name, length in (("query", query_length), ("document", document_length)):
            if length <= reserved:
                raise ConfigError(
                    f"{name} length {length} leaves no room for text beside {reserved} special tokens: ask for more"
                )
        self.tokenizer = tokenizer
        self.query_length = query_length
        self.document_length = document_length

    def __call__(self, rows: Sequence[Mapping[str, str]]) -> dict[str, torch.Tensor]:
        """Return query_ids, query_mask (B, L) and document_ids, document_mask (2B, L'), all int64, filled on the right.

        Of the documents, the B positives come first, then the B negatives. No token_type_ids: ModernBERT takes none.
        """
        queries = [row["query"] for row in rows]
        documents = [row["positive"] for row in rows] + [row["negative"] for row in rows]
        query_ids, query_mask = self._tokens(queries, self.query_length)
        document_ids, document_mask = self._tokens(documents, self.document_length)
        return {
            "query_ids": query_ids,
            "query_mask": query_mask,
            "document_ids": document_ids,
            "document_mask": document_mask,
        }

    def _tokens(self, texts: list[str], length: int) -> tuple[torch.Tensor, torch.Tensor]:
        found = self.tokenizer(
            texts,
            truncation=True,
            max_length=length,
            return_attention_mask=False,
            return_token_type_ids=False,
        )
        return pad(found["input_ids"], self.tokenizer.pad_token_id or 0)
