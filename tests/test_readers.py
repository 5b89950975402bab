"""Malformed files of every kind, read by everything that reads files: an error of ours that names the file, or all of it read.

malformed.py makes them, readers.py lists the readers. A reader that the package gains is missed by the last test.
"""

import ast
import copy
import functools
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyserini_rescale
from pyserini_rescale import cli, collections, corpora, environment, yaml_files
from pyserini_rescale.errors import RescaleError
from pyserini_rescale.regression import pages, planning, stages
from pyserini_rescale.train import config, deepspeed_file, sources
from tests.malformed import Broken, Reader, breakages, places
from tests.readers import READERS

PACKAGE = Path(pyserini_rescale.__file__).parent
BY_NAME = pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """Triples that were prepared go where the next session does not find them."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))


@pytest.fixture
def remembered(monkeypatch):
    """What is the same for every broken file is found out once: options, versions, commit, and what a good YAML file holds."""
    monkeypatch.setattr(cli, "parser_of", functools.cache(cli.parser_of))
    monkeypatch.setattr(stages, "versions", functools.cache(stages.versions))
    monkeypatch.setattr(environment, "_commit", functools.cache(environment._commit))
    parse = functools.cache(yaml_files.parse_yaml)
    monkeypatch.setattr(yaml_files, "parse_yaml", lambda text: copy.deepcopy(parse(text)))


def written(reader: Reader, root: Path) -> Path:
    """Write the good files where nothing is."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    reader.write(root)
    return root / reader.path


def faults(reader: Reader, root: Path, broken: Broken, good: object) -> Iterator[str]:
    """Yield what is wrong with how a reader takes a broken file."""
    written(reader, root).write_bytes(broken.content)
    try:
        found = reader.read(root)
    except RescaleError as error:
        names = [Path(name).name.split(".")[0] for name in (reader.path, reader.beside) if name]
        if str(error) == reader.says:
            return
        if "\n" in str(error) or not any(name in str(error) for name in names):
            yield f"the file is not named: {error}"
        elif reader.lines and broken.line is not None and not re.search(rf"\b(line|row) {broken.line}\b", str(error)):
            yield f"line {broken.line} is not named: {error}"
    except Exception as error:
        yield f"{type(error).__name__}: {error}"
    else:
        given = sum(bool(line.strip()) for line in broken.content.split(b"\n")) - reader.header
        merged = "twice" in broken.kind  # judgements that are repeated count once
        given -= reader.halves and not broken.content.endswith(b"\n")
        if isinstance(good, list) and reader.form in ("jsonl", "rows") and len(found) < given and not merged:
            yield f"{len(found)} of {given} lines were read"


def check(reader: Reader, root: Path, rest: bool) -> None:
    written(reader, root)
    good = reader.read(root)
    wrong = [
        f"{broken.kind}: {fault:.300}"
        for broken in breakages(reader, rest)
        for fault in faults(reader, root, broken, good)
    ]
    # Half a surrogate pair could not be reported.
    said = "\n".join(wrong[:20]).encode("ascii", "backslashreplace").decode()
    assert not said, f"{len(wrong)} faults\n{said}"


@BY_NAME
@pytest.mark.usefixtures("remembered")
def test_malformed_files(tmp_path, reader):
    check(reader, tmp_path / "files", rest=False)


@pytest.mark.slow
@BY_NAME
@pytest.mark.usefixtures("remembered")
def test_the_other_malformed_files(tmp_path, reader):
    check(reader, tmp_path / "files", rest=True)


@BY_NAME
def test_what_is_no_file(tmp_path, reader):
    for what in [name for name, _ in places(Path())]:
        path = written(reader, tmp_path / "files")
        path.unlink()
        next(put for name, put in places(path) if name == what)()
        try:
            reader.read(tmp_path / "files")
        except RescaleError as error:
            assert "\n" not in str(error), what


def test_pages_that_are_no_text(tmp_path):
    (tmp_path / "a.md").write_bytes(b"\xff\0")
    assert pages.differences({"a.md": "text\n"}, tmp_path) == [f"{tmp_path / 'a.md'} is out of date"]


@pytest.mark.parametrize(
    "use",
    [
        lambda name: collections.open_collection(name),
        lambda name: corpora.open_corpus(name),
        lambda name: corpora.open_topics(name),
        lambda name: sources.find_files([name]),
        lambda name: deepspeed_file.read_deepspeed(name),
        lambda name: config.resolve(name),
        lambda name: planning._named_folder(Path(name), "--data", "DATA", "x", False, {}),
    ],
)
def test_the_home_of_nobody_is_no_folder(use):
    with pytest.raises(RescaleError, match="~nobody-of-this-name"):
        use("~nobody-of-this-name/x")


@pytest.mark.slow
def test_a_signal_to_end_leaves_nothing_aside(tmp_path):
    documents = (json.dumps({"_id": str(number), "text": "wing " * 50}) + "\n" for number in range(200_000))
    (tmp_path / "corpus.jsonl").write_text("".join(documents))
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "wing"}\n')
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("q\t1\t1\n")
    command = [
        sys.executable,
        "-m",
        "pyserini_rescale",
        "collection",
        str(tmp_path),
        "--output",
        str(tmp_path / "out" / "new"),
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not (aside := list(tmp_path.glob("out/.*/corpus/*"))) and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert aside and "Traceback" not in process.communicate()[1]
    assert process.returncode == 128 + signal.SIGTERM and list((tmp_path / "out").iterdir()) == []


# Calls that read a file, or what a file holds
READING = {
    "read_text", "read_bytes", "loads", "load", "safe_load", "ParquetFile", "ZipFile", "fromfile", "read_lines", "read_yaml",
    "read_json", "json_file", "read_object", "json_object", "read_topics", "_raw_lines", "stored_tensors", "safe_open", "load_file",
}  # fmt: skip
# Functions that do, and why they are not in the table.
ELSEWHERE = {
    "collections.py:ir_dataset_stream": "ir_datasets reads; test_collections.py has what it raises",
    "doctor/child.py:run": "what the other process wrote; doctor/test_checks.py",
    "doctor/host.py:anserini": "doctor/test_checks.py",
    "doctor/machine.py:_available": "the system's file",
    "doctor/machine.py:_limit": "the system's file",
    "doctor/machine.py:pyserini_cache": "Pyserini's own file",
    "doctor/trial.py:_vectors": "what the trial wrote a moment ago",
    "encode/base.py:has_bf16": "the system's file",
    "encode/check.py:_compare_manifest": "read_manifest reads; test_corpus.py",
    "encode/corpus.py:encode": "read_settings reads; test_corpus.py",
    "encode/export.py:_read_float": "what was written a moment ago; test_export.py",
    "encode/export.py:_write_ciff": "what was written a moment ago; test_export.py",
    "encode/folder.py:Folder.write_once": "read_settings reads again; test_corpus.py",
    "logs.py:_tail": "any bytes are a log; test_stages.py",
    "model/head.py:_reload_elsewhere": "what the other process wrote; test_head.py",
    "model/reload.py:main": "what the other process wrote; test_head.py",
    "model/tokenizer.py:apply_text_policy": "no file, what the tokenizers library gives",
    "plugin/java.py:inspect": "of another program, any bytes; test_java.py",
    "quickstart/pipeline.py:_run": "read_object reads; test_quickstart.py",
    "regression/catalogue.py:choose": "another function of the package is called load",
    "regression/catalogue.py:load_all": "another function of the package is called load",
    "regression/pages.py:_opening_comment": "a file that load has read",
    "regression/pages.py:differences": "any bytes are a page; test_pages_that_are_no_text",
    "regression/runner.py:_gate": "what cannot be read is left to verify; test_runner.py",
    "regression/wheel.py:fetch": "test_tools.py",
    "train/checkpoints.py:_sync": "nothing is read",
    "train/trainer.py:SpladeTrainer.restore_monitors": "test_broken_runs.py",
}


def reading_functions() -> Iterator[str]:
    """Yield module:function of the package's functions that call one of ``READING``, or open a file to read it."""
    for path in PACKAGE.rglob("*.py"):
        for name, node in functions(ast.parse(path.read_text(encoding="utf-8")), ""):
            for call in own_calls(node):
                called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
                words = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
                if called in READING or (called == "open" and not any(re.fullmatch("[wax]b?", word) for word in words)):
                    yield f"{path.relative_to(PACKAGE).as_posix()}:{name}"
                    break


def functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            name = f"{prefix}{child.name}"
            if isinstance(child, ast.FunctionDef):
                yield name, child
            yield from functions(child, f"{name}." if isinstance(child, ast.ClassDef) else f"{name}.<locals>.")
        else:
            yield from functions(child, prefix)


def own_calls(node: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls in a function that are in no function inside it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef):
            if isinstance(child, ast.Call):
                yield child
            yield from own_calls(child)


def test_no_reader_is_missing(tmp_path):
    called: set[str] = set()

    def note(frame, event, arg):
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(str(PACKAGE)):
            called.add(f"{Path(file).relative_to(PACKAGE).as_posix()}:{frame.f_code.co_qualname}")

    for reader in READERS:
        written(reader, tmp_path / "files")
        sys.setprofile(note)
        try:
            reader.read(tmp_path / "files")
        finally:
            sys.setprofile(None)
    reading = set(reading_functions())
    missing = sorted(reading - called - set(ELSEWHERE))
    assert missing == [], "give each a line in readers.py"
    assert ELSEWHERE.keys() <= reading - called, "not needed any more"
