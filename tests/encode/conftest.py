"""Fixtures for the encoders: Pyserini with our patches, small models with a tokenizer, and real data where it lies."""

import itertools
import json
from pathlib import Path
from types import ModuleType

import pytest
import torch

from pyserini_rescale.plugin import hook
from tests.model.builders import WORDS, build, make_word_tokenizer, shared_folder


@pytest.fixture(scope="session")
def pyserini_encode() -> ModuleType:
    """``pyserini.encode``, imported with our patches whether the package is installed or not."""
    hook.install()
    import pyserini.encode

    return pyserini.encode


@pytest.fixture(scope="session")
def encoder(pyserini_encode) -> ModuleType:
    """Our module of encoder classes."""
    from pyserini_rescale.encode import encoder

    return encoder


def write_model(folder: Path, model_type: str = "bert", tokenizer=None, **changes) -> str:
    """Save a random model without our policy, as safetensors and for Pyserini also as .bin, and a tokenizer.

    The default tokenizer has a token for each of the model's ids, without which Pyserini's classes fail.
    """
    model = build(model_type, **changes)
    with torch.no_grad():
        model.get_output_embeddings().bias.sub_(0.5)  # most terms inactive, as in a trained SPLADE
    model.save_pretrained(folder)
    if tokenizer is None:
        fillers = [f"filler{number}" for number in range(model.config.vocab_size - 5 - len(WORDS))]
        tokenizer = make_word_tokenizer(model, WORDS + fillers)
    tokenizer.save_pretrained(folder)
    torch.save(dict(model.state_dict()), folder / "pytorch_model.bin")
    return str(folder)


@pytest.fixture(scope="session")
def bert(tmp_path_factory) -> str:
    return write_model(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="session")
def roberta(tmp_path_factory) -> str:
    return write_model(tmp_path_factory.mktemp("roberta"), "roberta")


@pytest.fixture(scope="session")
def modernbert(tmp_path_factory) -> str:
    return write_model(tmp_path_factory.mktemp("modernbert"), "modernbert")


@pytest.fixture(scope="session")
def splade_tiny() -> str:
    """A trained SPLADE (BERT, 2 layers x 128)."""
    return str(shared_folder("PYSERINI_RESCALE_MODELS", "models") / "splade-tiny")


@pytest.fixture(scope="session")
def scifact() -> list[dict]:
    """The first 24 documents of SciFact."""
    path = shared_folder("PYSERINI_RESCALE_DATA", "data") / "scifact" / "corpus.jsonl"
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in itertools.islice(lines, 24)]
