"""A random small BERT with a tokenizer, triples of its words, and a configuration that trains it on a CPU."""

import functools
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
from multiprocessing import forkserver
from multiprocessing.connection import wait
from pathlib import Path
from unittest import mock

import pytest
from torch.distributed.elastic.utils.distributed import get_free_port

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


def launch(
    arguments: list,
    processes: int = 1,
    orders: dict | None = None,
    check: bool = True,
    timeout: int = 300,
    torchrun: bool = False,
):
    """Run ``train`` by driver.py, which obeys ``orders``, in forks or under torchrun; return what subprocess.run would."""
    given = [json.dumps(orders or {}), *map(str, arguments)]
    done = (_torchrun if torchrun else _forked)(given, processes, timeout)
    if check:
        assert done.returncode == 0, done.stderr[-3000:]
    return done


def _torchrun(arguments: list[str], processes: int, timeout: int) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes),
         "-m", "tests.train.driver", *arguments],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=timeout, env={**os.environ, **ENVIRON},
    )  # fmt: skip


def _forked(arguments: list[str], processes: int, timeout: int) -> subprocess.CompletedProcess:
    """Fork from a clean process that has imported what takes the time; as under torchrun, one that fails ends the others."""
    environ = os.environ | ENVIRON
    if processes > 1:
        environ |= {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(get_free_port())}
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder, name) for name in ("stdout", "stderr")]
        group = []
        for number in range(processes):
            ranks = {"RANK": str(number), "LOCAL_RANK": str(number)} if processes > 1 else {}
            group.append(_forks().Process(target=_child, args=(arguments, environ | ranks, *logs)))
            group[-1].start()
        end, running, status = time.monotonic() + timeout, group, 0
        try:
            while running and not status:
                if not wait([process.sentinel for process in running], end - time.monotonic()):
                    raise subprocess.TimeoutExpired(arguments, timeout)
                ended = [process for process in running if process.exitcode is not None]
                running = [process for process in running if process not in ended]
                status = next((process.exitcode for process in ended if process.exitcode), 0)
        finally:
            for process in running:
                process.kill()
                process.join()
            for process in group:
                _wait_for_its_own(process.pid)
        return subprocess.CompletedProcess(arguments, status, *(path.read_text() for path in logs))


def _wait_for_its_own(group: int) -> None:
    """Data loaders of a process that is killed end some seconds later, and hold the lock on its folder until then."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise TimeoutError(f"what process {group} started goes on")


@functools.cache
def _forks():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.train.driver", "transformers.trainer", "datasets", "deepspeed"])
    with mock.patch.dict(os.environ, ENVIRON):  # some of it is read at import
        forkserver.ensure_running()
    return context


def _child(arguments: list[str], environ: dict, *logs: Path) -> None:
    from tests.train import driver  # changes the trainer, so not in the tests' own process

    for number, path in enumerate(logs, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    os.setpgid(0, 0)
    os.environ.update(environ)
    os.chdir(ROOT)
    multiprocessing.set_start_method(None, force=True)  # for data loaders as in any other process
    sys.exit(driver.run(json.loads(arguments[0]), arguments[1:]))
