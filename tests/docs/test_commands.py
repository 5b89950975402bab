"""Every command of the pages: parsed as typed by the parser that it would meet, and what can be is run.

New commands of ours are parsed without further ado. What is run stands in CHAPTERS: one more line there, in the order in
which a reader types it. Commands of other programs need a line in CHAPTERS or in ELSEWHERE.
"""

import argparse
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pyserini_rescale.cli import main, parser_of

from ..integration.conftest import WORDS, make_model
from .commands import OURS, PROGRAMS, ROOT, argv_of, commands_of, pages, readings

COMMANDS = [command for page in pages() for command in commands_of(page)]
TEXTS = {command.text for command in COMMANDS}

CHAPTERS: dict[str, list[str | tuple[str, str]]] = {
    # What is typed, in order, in a folder with MODEL, DATA, SCIFACT and the like; or a pair of it and of what is added, so that
    # it ends in seconds. Names: what a page leaves to the reader is a file of that name.
    "README, a backbone of your own": [
        "python -m pyserini_rescale head suggest MODEL",
        "python -m pyserini_rescale train mine DATA --split train --output triples.jsonl",
        (
            "python -m pyserini_rescale train --config paper --backbone MODEL --triples triples.jsonl --set rescale.factor=auto "
            "rescale.scope=null rescale.shift=auto batch.world_size=1 --output runs/mine",
            "--backbone mini-bert --cpu --set batch.per_device=4 max_steps=2 text.query_length=16 text.document_length=32 compute.precision=fp32 compute.deepspeed=null "
            "monitors.collapse.action=warn",
        ),
        "python -m pyserini_rescale collection DATA --split test --output mine",
        "python -m pyserini_rescale encode --corpus DATA --model runs/mine/model --output encoded",
        "python -m pyserini_rescale index encoded --index index",
        "python -m pyserini.search.lucene --impact --index index --topics mine/topics.json "
        "--encoder splade-rescaled:runs/mine/model --output run.txt",
        "python -m pyserini.eval.trec_eval -c -m ndcg_cut.10 mine/qrels.txt run.txt",
        "python -m pyserini_rescale.regression.bm25 --collection mine --output bm25.txt",
        "python -m pyserini.eval.trec_eval -c -m ndcg_cut.10 mine/qrels.txt bm25.txt",
    ],
    "README, with Pyserini": [
        "python -m pyserini_rescale collection SCIFACT --split test --output scifact",
        "python -m pyserini.encode input --corpus scifact/corpus --fields title text output --embeddings scifact-embeddings "
        "encoder --encoder MODEL --encoder-class splade-rescaled --fields title text --device cpu",
        "python -m pyserini.index.lucene --collection JsonVectorCollection --input scifact-embeddings --index scifact-index "
        "--generator DefaultLuceneDocumentGenerator --threads 1 --impact --pretokenized",
        "python -m pyserini.search.lucene --impact --index scifact-index --topics scifact/topics.json --encoder "
        "splade-rescaled:MODEL --output scifact-run.txt",
        "python -m pyserini.eval.trec_eval -c -m ndcg_cut.10 -m recip_rank scifact/qrels.txt scifact-run.txt",
    ],
    "whole corpora, and docs/encode.md": [
        "python -m pyserini_rescale encode --corpus SCIFACT --model MODEL --output scifact-encoded",
        "python -m pyserini_rescale encode check scifact-encoded",
        "python -m pyserini_rescale index scifact-encoded --index scifact-encoded-index",
        "python -m pyserini_rescale encode topics SCIFACT --like scifact-encoded --output scifact-topics.json",
        'python -m pyserini_rescale explain --encoder MODEL --query "microbial resistance" --index scifact-encoded-index --docid 4983',
        "python -m pyserini.search.lucene --impact --index scifact-encoded-index --topics scifact-topics.json --output scifact-run.txt",
        "python -m pyserini_rescale export scifact-encoded --format ciff --topics scifact-topics.json --output scifact-ciff",
        "python -m pyserini_rescale export scifact-encoded --format jsonl-float --topics scifact-topics.json --output "
        "scifact-float",
        "python -m pyserini_rescale encode --shard 3/16 --corpus SOURCE --model MODEL --output ENCODED",
    ],
    "README, rescale a head": [
        "python -m pyserini_rescale head show MODEL",
        "python -m pyserini_rescale head rescale MODEL --factor 16 --scope shared --output RESCALED",
        "python -m pyserini_rescale head undo RESCALED --output ORIGINAL",
        "python -m pyserini_rescale head rescale MODEL --factor 4 --bias-offset auto --output SHIFTED",
    ],
    "docs/head.md": ["python -m pyserini_rescale head rescale MODEL --bias-offset auto --texts FILE --output DIR"],
    "train": [
        "python -m pyserini_rescale train mine SCIFACT --split train --output triples.jsonl",
        (
            "python -m pyserini_rescale train --config smoke --backbone MODEL --triples triples.jsonl",
            "--set max_steps=2 text.query_length=16 text.document_length=32",
        ),
        "python -m pyserini_rescale plot loss runs/train/smoke --output loss.png",
        "python -m pyserini_rescale train list",
        "python -m pyserini_rescale train --config table2:modernbert.k16 --dry-run",
    ],
    "regressions": [
        "python -m pyserini_rescale regress list",
        "python -m pyserini_rescale regress plan msmarco-dev.modernbert-base.k16",
        ("python -m pyserini_rescale regress run --suite table2 --device cuda:0", "--dry-run"),
        ("python -m pyserini_rescale regress run --suite ci", "--dry-run"),
        ("python -m pyserini_rescale regress run scifact.splade-tiny", "--dry-run"),
        ("python -m pyserini_rescale regress run scifact.inflated.k1 scifact.inflated.k16", "--dry-run"),
        ("python -m pyserini_rescale regress run docstrings.mini-modernbert.auto-offset", "--dry-run"),
        "python -m pyserini_rescale regress report --suite table2",
        "python -m pyserini_rescale regress figure 3 --output figure3.png",
    ],
}
ELSEWHERE = {
    "source .venv/bin/activate": "what bash scripts/setup.sh makes; .ci/run takes its Python",
    "pip install .": "tests/integration/test_install.py",
    "pip install": "the same",
    "bash .ci/run": "it runs these tests",
    "mkdir -p runs/evidence": "a shell's own",
    "cp -r docs/evidence/results runs/evidence/": "a shell's own; the folder is there",
}
STATUS = {"python -m pyserini_rescale regress report --suite table2": 4}  # nothing is measured yet
OWN_PROCESS = ("train", "explain")  # what starts a JVM or process groups is no guest of the tests' process


class Parsed(Exception):
    """A parser has taken the words."""


@pytest.fixture
def only_parse(monkeypatch):
    """Make a program of ours end where it has parsed its words."""
    real = argparse.ArgumentParser.parse_args

    def parse_args(self, args=None, namespace=None):
        real(self, args, namespace)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)


def parsed_by_launcher(argv: list[str]) -> list[str]:
    """Return what follows the launcher of processes, whose own options its own parser has taken."""
    if argv[0] == "torchrun":
        from torch.distributed.run import get_args_parser

        found = get_args_parser().parse_args(argv[1:])
        return ["python", "-m", found.training_script, *found.training_script_args]
    if argv[0] == "deepspeed":
        from deepspeed.launcher.runner import parse_args

        found = parse_args(argv[1:])
        return ["python", "-m", found.user_script, *found.user_args]
    return argv[argv.index("python") :] if argv[0] == "srun" else argv


def check(argv: list[str], monkeypatch) -> None:
    """Let the parser that the words would meet take them."""
    argv = parsed_by_launcher(argv)
    if argv[:3] == OURS.split():
        parser_of(argv[3]).parse_args(argv[4:])
    elif argv[0] == "python":
        import runpy

        monkeypatch.setattr(sys, "argv", argv[1:])
        monkeypatch.syspath_prepend(str((ROOT / argv[1]).parent))
        with pytest.raises(Parsed):
            runpy.run_path(str(ROOT / argv[1]), run_name="__main__")
    else:
        assert argv[0] == "bash" and not subprocess.run(["bash", "-n", ROOT / argv[1]], check=False).returncode


def run_steps() -> list[str]:
    return [step if isinstance(step, str) else step[0] for steps in CHAPTERS.values() for step in steps]


def others() -> set[str]:
    """Commands of programs that are not ours and no script of the checkout."""
    return {text for text in TEXTS if not text.split()[1].startswith("scripts/") and "pyserini_rescale " not in text}


def test_pages_have_commands_and_each_is_parsed_run_or_looked_at_elsewhere():
    assert len(TEXTS) > 60 and {text.split()[0] for text in TEXTS} <= set(PROGRAMS)
    assert others() - set(run_steps()) - set(ELSEWHERE) == set()


def test_no_entry_is_stale():
    assert {*run_steps(), *ELSEWHERE, *STATUS} - TEXTS == set()


@pytest.mark.parametrize("text", sorted(TEXTS - others()))
def test_is_parsed(text, monkeypatch, request):
    for reading in readings(text):
        _, argv = argv_of(reading)
        if "scripts/" in argv[1] and argv[0] == "python":
            request.getfixturevalue("only_parse")
        check(argv, monkeypatch)


def place(folder: Path) -> None:
    """Make what the pages leave to the reader: a small model, a collection in BEIR layout, texts."""
    chance = random.Random(1)
    more = ("microbial", "resistance")
    make_model(folder / "MODEL", extra_words=more)
    sentences = [" ".join(chance.choices([*WORDS, *more], k=12)) for _ in range(60)]
    scifact = folder / "SCIFACT"
    (scifact / "qrels").mkdir(parents=True)
    corpus = [{"_id": str(4983 + n), "title": more[0], "text": text} for n, text in enumerate(sentences)]
    queries = [{"_id": f"q{n}", "text": " ".join(text.split()[:4])} for n, text in enumerate(sentences)]
    for name, objects in (("corpus", corpus), ("queries", queries)):
        (scifact / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in objects))
    for split, numbers in (("train", range(30)), ("test", range(30, 60))):
        lines = ["query-id\tcorpus-id\tscore", *(f"q{n}\t{4983 + n}\t1" for n in numbers)]
        (scifact / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    for name in ("DATA", "SOURCE"):
        shutil.copytree(scifact, folder / name)
    (folder / "collections").mkdir()
    specs = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "regressions" / "collections").glob("*.yaml"))
    for name in set(re.findall(r"^ +folder: (\S+)$", specs, re.MULTILINE)):
        (folder / "collections" / name).symlink_to(scifact)
    (folder / "FILE").write_text("\n".join(sentences) + "\n")


@pytest.mark.slow
@pytest.mark.jvm
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_runs_as_typed(chapter, tmp_path, monkeypatch, capsys):
    place(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYSERINI_RESCALE_DATA", str(tmp_path / "collections"))
    monkeypatch.delenv("PYSERINI_RESCALE_MODELS", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    for step in CHAPTERS[chapter]:
        text, more = (step, "") if isinstance(step, str) else step
        _, argv = argv_of(text + " " + more)
        if argv[:3] == OURS.split() and argv[3] not in OWN_PROCESS:
            status, said = main(argv[3:]), capsys.readouterr()
            out, err = said.out, said.err
        else:
            done = subprocess.run([sys.executable, *argv[1:]], capture_output=True, text=True, check=False)
            status, out, err = done.returncode, done.stdout, done.stderr
        assert status == STATUS.get(text, 0), f"{shlex.join(argv)}\n{out[-2000:]}\n{err[-2000:]}"
        assert "Traceback" not in err, f"{shlex.join(argv)}\n{err[-2000:]}"
        for option in ("--output", "--index", "--embeddings"):
            if option in argv and "--dry-run" not in argv:
                assert Path(argv[argv.index(option) + 1]).exists(), f"{shlex.join(argv)} wrote nothing"
