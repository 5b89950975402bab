"""Fixtures for the tests of the model; the builders of small models are in builders.py."""

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyserini_rescale.model import head
from tests.model.builders import make_word_tokenizer, shared_folder


@pytest.fixture(scope="session")
def splade_tiny() -> str:
    """A trained SPLADE (BERT, 2 layers x 128)."""
    return str(shared_folder("PYSERINI_RESCALE_MODELS", "models") / "splade-tiny")


@pytest.fixture
def word_tokenizer():
    """A function from a model to a word-level tokenizer that fits its vocabulary."""
    return make_word_tokenizer


class OtherTransformers:
    """Another interpreter, with transformers 4.x: loads a folder and writes its logits, as reload.py does.

    It imports transformers once, and runs each program in a process forked from there (transformers_4.py).
    """

    def __init__(self, python: str) -> None:
        self.log = tempfile.TemporaryFile("w+", errors="replace")
        self.process = subprocess.Popen(
            [python, "-P", Path(__file__).with_name("transformers_4.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
        )  # fmt: skip

    def run(self, arguments: list, text: str = "") -> str:
        with contextlib.suppress(BrokenPipeError):  # it ended; said below
            print(json.dumps({"arguments": [*map(str, arguments)], "text": text}), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            status = self.process.wait()
            self.log.seek(0)
            pytest.fail(
                f"the interpreter with transformers 4 ended, status {status}:\n{self.log.read()}", pytrace=False
            )
        answer = json.loads(line)
        assert answer["status"] == 0, f"status {answer['status']}:\n{answer['stderr']}"
        return answer["stdout"]

    def __call__(self, folder: Path, request: dict, answer: Path) -> None:
        self.run([Path(head.__file__).with_name("reload.py"), folder, answer], json.dumps(request))

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.log.close()


@pytest.fixture(scope="session")
def other_transformers() -> Iterator[OtherTransformers]:
    python = os.environ.get("PYSERINI_RESCALE_PYTHON_WITH_TRANSFORMERS_4")
    if not python:
        pytest.skip("PYSERINI_RESCALE_PYTHON_WITH_TRANSFORMERS_4 names no interpreter that has transformers 4.57")
    with contextlib.closing(OtherTransformers(python)) as other:
        yield other
