"""Fixtures for the tests of the model; the builders of small models are in builders.py."""

import json
import os
import subprocess
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
    """Another interpreter, with transformers 4.x: loads a folder and writes its logits, as reload.py does."""

    def __init__(self, python: str) -> None:
        self.python = python

    def run(self, arguments: list, text: str = "") -> str:
        done = subprocess.run(
            [self.python, *map(str, arguments)], input=text, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def __call__(self, folder: Path, request: dict, answer: Path) -> None:
        self.run(["-P", Path(head.__file__).with_name("reload.py"), folder, answer], json.dumps(request))


@pytest.fixture(scope="session")
def other_transformers() -> OtherTransformers:
    python = os.environ.get("PYSERINI_RESCALE_PYTHON_WITH_TRANSFORMERS_4")
    if not python:
        pytest.skip("PYSERINI_RESCALE_PYTHON_WITH_TRANSFORMERS_4 names no interpreter that has transformers 4.57")
    return OtherTransformers(python)
