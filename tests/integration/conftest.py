"""A small random model, a small collection, and Pyserini's commands in processes of their own."""

import dataclasses
import json
import os
import resource
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

WORDS = "wind tunnel heat flow shock wave plate wing drag lift jet boundary layer supersonic cone pressure gas".split()


@dataclasses.dataclass(frozen=True)
class Done:
    """How a command ended."""

    status: int
    out: str
    err: str

    def error_lines(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith("error:")]


def run_module(
    module: str,
    *arguments: object,
    environ: dict[str, str] | None = None,
    cwd: Path | None = None,
    largest_file: int | None = None,
) -> Done:
    """``python -m MODULE ARGUMENTS``, as typed. largest_file: bytes, beyond which writing fails as on a full disk."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    limit = None
    if largest_file is not None:
        limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (largest_file, largest_file))
        # Coverage would write its own file in the process, and leave half of it.
        environ = {key: value for key, value in (environ or os.environ).items() if not key.startswith("COVERAGE_")}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, cwd=cwd, check=False, preexec_fn=limit)
    return Done(done.returncode, done.stdout, done.stderr)


def make_model(folder: Path, *, seed: int = 0, bias: float = -1.0, extra_words: tuple[str, ...] = ()) -> Path:
    """Save a random BERT with a vocabulary of a few words; the bias decides how many of them are active."""
    import torch
    from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

    folder.mkdir(parents=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *extra_words]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    BertTokenizerFast(str(folder / "vocab.txt"), do_lower_case=True, model_max_length=64).save_pretrained(folder)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        initializer_range=0.5,
    )
    model = BertForMaskedLM(config)
    with torch.no_grad():
        model.get_output_embeddings().bias.fill_(bias).add_(torch.randn(len(vocabulary)))
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    """A model without our key, at a path that says nothing about its kind."""
    return make_model(tmp_path_factory.mktemp("models") / "backbone")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    """40 documents of 1 to 40 words, some without a title, one without any text."""
    import random

    chance = random.Random(1)
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    with open(path, "w", encoding="utf-8") as file:
        for number in range(40):
            text = " ".join(chance.choices(WORDS, k=1 + number)) if number != 7 else ""
            title = " ".join(chance.choices(WORDS, k=3)) if number % 3 else ""
            file.write(json.dumps({"_id": f"doc{number}", "title": title, "text": text}) + "\n")
    return path


@pytest.fixture(scope="session")
def topics(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("topics") / "topics.tsv"
    path.write_text("q1\twind tunnel\nq2\tsupersonic flow over a cone\nq3\theat\nq4\tzebra\n")
    return path


def encode(
    corpus: Path,
    output: Path,
    model: object,
    *more: object,
    runner: tuple[str, ...] = (),
    largest_file: int | None = None,
) -> Done:
    """``python -m pyserini.encode`` with our class; ``more`` are options of its encoder part."""
    module, *first = [*runner, "pyserini.encode"]
    return run_module(
        module,
        *first,
        "input",
        "--corpus",
        corpus,
        "--fields",
        "title",
        "text",
        "output",
        "--embeddings",
        output,
        "encoder",
        "--encoder",
        model,
        "--encoder-class",
        "splade-rescaled",
        "--fields",
        "title",
        "text",
        *more,
        largest_file=largest_file,
    )


def index(vectors: Path, output: Path) -> Done:
    return run_module(
        "pyserini.index.lucene",
        "--collection",
        "JsonVectorCollection",
        "--input",
        vectors,
        "--index",
        output,
        "--generator",
        "DefaultLuceneDocumentGenerator",
        "--threads",
        1,
        "--impact",
        "--pretokenized",
    )


@pytest.fixture(scope="session")
def vectors(tmp_path_factory, corpus, model) -> Path:
    """The folder that ``pyserini.encode`` leaves."""
    folder = tmp_path_factory.mktemp("vectors") / "vectors"
    done = encode(corpus, folder, model, "--device", "cpu")
    assert done.status == 0, done.err
    return folder


@pytest.fixture(scope="session")
def lucene_index(tmp_path_factory, vectors) -> Path:
    folder = tmp_path_factory.mktemp("index") / "index"
    done = index(vectors, folder)
    assert done.status == 0, done.err
    return folder


def read_vectors(folder: Path) -> dict[str, dict[str, int]]:
    lines = (line for path in sorted(folder.iterdir()) for line in path.read_text().splitlines())
    return {record["id"]: record["vector"] for record in map(json.loads, lines)}


def read_run(path: Path) -> dict[str, dict[str, float]]:
    run: dict[str, dict[str, float]] = {}
    for line in path.read_text().splitlines():
        qid, _, docid, _, score, _ = line.split()
        run.setdefault(qid, {})[docid] = float(score)
    return run
