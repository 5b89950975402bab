"""A random small BERT with a tokenizer, triples of its words, and a configuration that trains it on a CPU."""

import functools
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
from multiprocessing import forkserver
from pathlib import Path
from unittest import mock

import pytest

from pyserini_rescale.plugin import hook
from pyserini_rescale.yaml_files import to_yaml
from tests.model.builders import SIZE, WORDS, build, make_word_tokenizer

ROOT = Path(__file__).parents[2]
ENVIRON = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
FILLERS = [f"filler{number}" for number in range(SIZE - 5 - len(WORDS))]


def save_backbone(folder: Path, model_type: str = "bert", words=None, lower: bool = True, **changes) -> str:
    """Save a random model and a tokenizer with a word for each of its ids."""
    model = build(model_type, **changes)
    model.save_pretrained(folder)
    make_word_tokenizer(model, words or WORDS + FILLERS, lower=lower).save_pretrained(folder)
    return str(folder)


def save_triples(path: Path, rows: int = 48, seed: int = 0) -> str:
    words = random.Random(seed)

    def text(size: int) -> str:
        return " ".join(words.choices(WORDS + FILLERS, k=size))

    lines = [json.dumps({"query": text(4), "positive": text(9), "negative": text(7)}) for _ in range(rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture(scope="session")
def pyserini_encode():
    """``pyserini.encode``, imported with our patches whether the package is installed or not."""
    hook.install()
    import pyserini.encode

    return pyserini.encode


@pytest.fixture(scope="session")
def backbone(tmp_path_factory) -> str:
    return save_backbone(tmp_path_factory.mktemp("backbone"))


@pytest.fixture(scope="session")
def triples(tmp_path_factory) -> str:
    return save_triples(tmp_path_factory.mktemp("triples") / "triples.jsonl")


@pytest.fixture
def config(tmp_path, backbone, triples):
    """A function: keyword sections, merged over a small run of paper.yaml -> the path of the configuration."""

    def write(name: str = "run", **sections) -> Path:
        base = {
            "extends": "paper.yaml",
            "backbone": {"name": backbone},
            "rescale": {"factor": 2},
            "data": {"files": [triples]},
            "text": {"query_length": 8, "document_length": 12},
            "batch": {"per_device": 4, "world_size": 1},
            "compute": {"device": "cpu", "precision": "fp32", "deepspeed": None},
            "output": str(tmp_path / name),
            "max_steps": 10,
            "checkpoints": {"every": 3, "keep": 2},
            "monitors": {"every": 2, "tensorboard": False},
        }
        for key, value in sections.items():
            base[key] = {**base[key], **value} if isinstance(value, dict) and isinstance(base.get(key), dict) else value
        path = tmp_path / f"{name}.yaml"
        path.write_text(to_yaml(base), encoding="utf-8")
        return path

    return write


def launch(arguments: list, processes: int = 1, orders: dict | None = None, check: bool = True, timeout: int = 300):
    """Run ``train`` by driver.py, which obeys ``orders``, in one process or under torchrun; return the finished process."""
    given = [json.dumps(orders or {}), *map(str, arguments)]
    done = _forked(given, timeout) if processes == 1 else _torchrun(given, processes, timeout)
    if check:
        assert done.returncode == 0, done.stderr[-3000:]
    return done


def _torchrun(arguments: list[str], processes: int, timeout: int) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes),
         "-m", "tests.train.driver", *arguments],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=timeout, env={**os.environ, **ENVIRON},
    )  # fmt: skip


def _forked(arguments: list[str], timeout: int) -> subprocess.CompletedProcess:
    """As subprocess.run would, in a process forked from a clean one that has imported what takes the time, once for all."""
    with tempfile.TemporaryDirectory() as folder:
        written = [Path(folder, name) for name in ("stdout", "stderr")]
        process = _forks().Process(target=_child, args=(arguments, dict(os.environ), *written))
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(arguments, timeout)
        return subprocess.CompletedProcess(arguments, process.exitcode, *(path.read_text() for path in written))


@functools.cache
def _forks():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.train.driver", "transformers.trainer", "datasets", "deepspeed"])
    with mock.patch.dict(os.environ, ENVIRON):  # some of it is read at import
        forkserver.ensure_running()
    return context


def _child(arguments: list[str], environ: dict, *written: Path) -> None:
    from tests.train import driver  # changes the trainer, so not in the tests' own process

    for number, path in enumerate(written, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.environ.update(environ | ENVIRON)
    os.chdir(ROOT)
    sys.exit(driver.run(json.loads(arguments[0]), arguments[1:]))
