"""``python -m pyserini_rescale head``: show, suggest, rescale and undo as typed, with good input and with bad."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM

from pyserini_rescale.cli import main
from tests.model.builders import build, shared_folder
from tests.model.head_texts import model_and_tokenizer, pairs
from tests.model.test_head_diagnose import plain_vectors

KEY = "splade_rescale"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A random BERT of 2,000 words with its tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "backbone"
    network, tokenizer = model_and_tokenizer()
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    """Twelve pairs as JSONL."""
    path = tmp_path_factory.mktemp("texts") / "pairs.jsonl"
    some = pairs()
    path.write_text(
        "".join(json.dumps({"query": q, "passage": p}) + "\n" for q, p in zip(some.queries, some.passages, strict=True))
    )
    return path


@pytest.fixture
def head(capsys):
    """A function that runs ``head ...`` in this process and returns (status, out, err)."""

    def call(*arguments) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(["head", *map(str, arguments)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def command(*arguments) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "pyserini_rescale", "head", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def logits(folder) -> torch.Tensor:
    ids = torch.arange(5, 21).reshape(2, 8)
    with torch.inference_mode():
        return (
            AutoModelForMaskedLM.from_pretrained(folder)
            .eval()(input_ids=ids, attention_mask=torch.ones_like(ids))
            .logits
        )


def test_show_as_typed_without_torch(model, tmp_path):
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "pyserini_rescale", "head", "show", str(model)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "numpy" in imported and not imported & {"torch", "transformers", "matplotlib", "pyserini"}
    header, row = done.stdout.splitlines()
    assert header.split()[:2] == ["model", "type"] and row.split()[:3] == ["backbone", "bert", "none"]
    weight = AutoModelForMaskedLM.from_pretrained(model).get_output_embeddings().weight.detach()
    assert f"{float(weight.norm(dim=1).mean()):.4f}" in row.split() and "2,000 x 24" in row


def test_show_several_as_json_with_a_plot(model, head, tmp_path):
    build("roberta").save_pretrained(tmp_path / "other")
    for suffix, magic in (("png", b"\x89PNG"), ("svg", b"<?xml")):
        status, out, err = head("show", model, tmp_path / "other", "--json", "--plot", tmp_path / f"norms.{suffix}")
        assert status == 0 and err == ""
        first, second = json.loads(out)
        assert (first["model_type"], second["model_type"]) == ("bert", "roberta") and second["vocabulary"] == 103
        assert (tmp_path / f"norms.{suffix}").read_bytes().startswith(magic)


def test_show_with_texts(model, head, texts):
    status, out, err = head("show", model, "--texts", texts)
    assert status == 0 and err == ""
    assert "12 query-passage pairs" in out and out.splitlines()[-1].startswith("too large: ")
    status, out, _ = head("show", model, "--texts", texts, "--json", "--limit", 5, "--length", 9)
    figures = json.loads(out)[0]["texts"]
    assert figures["candidates"] == 5 and figures["verdict"] == "too large"


@pytest.mark.slow
def test_suggest_names_a_command_that_works(model, head, texts, tmp_path):
    status, out, err = head("suggest", model, "--texts", texts, "--target-active", "0.02")
    assert status == 0 and err == ""
    typed = next(line for line in out.splitlines() if "head rescale" in line).split()
    assert typed[:4] == ["python", "-m", "pyserini_rescale", "head"] and "auto" in typed
    status, out, err = head(*[str(tmp_path / "new") if word == "DIR" else word for word in typed[4:]])
    assert status == 0 and err == "" and "same logits" in out
    status, out, _ = head("show", tmp_path / "new", "--texts", texts)
    assert out.splitlines()[-1].startswith("healthy: ")
    rows = json.loads(head("suggest", model, "--texts", texts, "--json")[1])["settings"]
    assert sum(row["recommended"] for row in rows) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["random", "splade-tiny"])
def test_auto_offset_keeps_the_masked_lm_and_meets_the_share(name, model, texts, tmp_path):
    """Through the command, in processes of their own: probabilities to 1e-5, the share within a tenth."""
    options = ["--texts", texts, "--target-active", "0.02"]
    if name == "splade-tiny":
        model, options = shared_folder("PYSERINI_RESCALE_MODELS", "models") / name, ["--target-active", "0.02"]
    done = command("rescale", model, "--bias-offset", "auto", *options, "--output", tmp_path / "offset")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert ("this head was healthy as it was" in done.stdout) == (name == "splade-tiny")
    before, after = logits(model).softmax(-1), logits(tmp_path / "offset").softmax(-1)
    assert (before - after).abs().max() < 1e-5
    config = json.loads((tmp_path / "offset" / "config.json").read_text())
    assert config[KEY]["offset_rule"] == "auto" and config[KEY]["target_active"] == 0.02
    from pyserini_rescale.model.texts import read_texts
    from pyserini_rescale.model.tokenizer import load_tokenizer

    passages = read_texts("builtin" if name == "splade-tiny" else str(texts)).documents
    network, tokenizer = (
        AutoModelForMaskedLM.from_pretrained(tmp_path / "offset").eval(),
        load_tokenizer(str(tmp_path / "offset")),
    )
    share = (plain_vectors(network, tokenizer, passages) > 0).mean()
    assert share == pytest.approx(0.02, rel=0.1)


@pytest.mark.slow
def test_rescale_undo_and_refusals_as_typed(model, texts, tmp_path, head):
    done = command(
        "rescale", model, "--factor", 16, "--scope", "untied", "--rescale-bias", "--bias-offset", "per-term",
        "--texts", texts, "--output", tmp_path / "new",
    )  # fmt: skip
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert "divided by k = 16, scope untied, bias too" in done.stdout and "moved by 0.00%" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new"]
    done = command("undo", tmp_path / "new", "--output", tmp_path / "again")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    np.testing.assert_allclose(logits(tmp_path / "again"), logits(model), rtol=1e-4, atol=1e-4)
    assert KEY not in json.loads((tmp_path / "again" / "config.json").read_text())
    for arguments, says in (
        (("rescale", tmp_path / "new", "--factor", 2), "rescaled before"),
        (("rescale", tmp_path / "new", "--bias-offset", 1), "offset already"),
        (("suggest", tmp_path / "new", "--texts", texts), "calibrated already"),
        (("undo", tmp_path / "again"), "nothing to undo"),
    ):
        output = () if arguments[0] == "suggest" else ("--output", tmp_path / "third")
        status, _, err = head(*arguments, *output)
        assert status == 2 and err.count("\n") == 1 and err.startswith("error: ") and says in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "new"]


@pytest.mark.slow
def test_the_command_says_how_far_hidden_states_moved(model, texts, tmp_path, head):
    status, out, _ = head(
        "rescale", model, "--factor", 16, "--scope", "shared", "--texts", texts, "--output", tmp_path / "shared"
    )
    assert status == 0
    line = next(line for line in out.splitlines() if line.startswith("hidden states moved"))
    assert float(line.split("by ")[1].split("%")[0]) > 10


@pytest.mark.slow
def test_without_a_tokenizer(tmp_path, head):
    """A plain rescale needs none, and says what it did without; what needs texts is refused."""
    build("bert").save_pretrained(tmp_path / "bare")
    status, out, err = head("rescale", tmp_path / "bare", "--factor", 2, "--output", tmp_path / "new")
    assert status == 0 and err.startswith("warning: ") and err.count("\n") == 1 and "fixed token ids" in out
    for arguments in (
        ("show", tmp_path / "bare", "--texts", "builtin"),
        ("suggest", tmp_path / "bare"),
        ("rescale", tmp_path / "bare", "--factor", "auto", "--output", tmp_path / "third"),
        ("rescale", tmp_path / "bare", "--bias-offset", "auto", "--output", tmp_path / "third"),
    ):
        status, _, err = head(*arguments)
        assert status == 2 and err.startswith("error: ") and "tokenizer" in err and err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bare", "new"]


BAD = {
    "factor of zero": (("--factor", "0"), "0"),
    "negative factor": (("--factor", "-4"), "-4"),
    "factor that is NaN": (("--factor", "nan"), "nan"),
    "factor that is no number": (("--factor", "big"), "--factor big"),
    "unknown scope": (("--factor", "2", "--scope", "all"), "'all'"),
    "nothing to do": ((), "nothing to do"),
    "bias rescaled by nothing": (("--rescale-bias", "--bias-offset", "1"), "bias"),
    "infinite offset": (("--bias-offset", "inf"), "inf"),
    "offset that is no number": (("--bias-offset", "some"), "--bias-offset some"),
    "share of zero": (("--bias-offset", "auto", "--target-active", "0"), "between 0 and 1"),
    "share of one": (("--bias-offset", "auto", "--target-active", "1"), "between 0 and 1"),
    "share that is no number": (("--bias-offset", "auto", "--target-active", "few"), "--target-active few"),
    "share below one term": (("--bias-offset", "auto", "--target-active", "1e-9", "--texts", "TEXTS"), "1e-09"),
    "share without a rule": (("--factor", "2", "--target-active", "0.1"), "--target-active goes with"),
    "missing text file": (("--factor", "2", "--texts", "none.txt"), "none.txt"),
    "empty text file": (("--factor", "2", "--texts", "EMPTY"), "holds no text"),
    "limit of zero": (("--factor", "2", "--texts", "TEXTS", "--limit", "0"), "--limit 0"),
    "length of nothing": (("--factor", "2", "--texts", "TEXTS", "--length", "none"), "--length none"),
    "length beyond the model": (("--factor", "2", "--texts", "TEXTS", "--length", "9999"), "32 positions"),
    "factor auto with a number": (("--factor", "auto", "--bias-offset", "1"), "auto"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_requests_are_one_clear_line_and_leave_nothing(case, model, texts, tmp_path, head):
    options, says = BAD[case]
    (tmp_path / "empty.txt").write_text("\n")
    places = {"TEXTS": str(texts), "EMPTY": str(tmp_path / "empty.txt")}
    status, out, err = head(
        "rescale", model, *(places.get(word, word) for word in options), "--output", tmp_path / "new"
    )
    assert status == 2 and err.count("\n") == 1 and err.startswith("error: ") and says in err and out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["empty.txt"]


def test_bad_places(model, texts, tmp_path, head):
    full = tmp_path / "full"
    full.mkdir()
    (full / "file").write_text("kept")
    no_bias = tmp_path / "no-bias"
    network, tokenizer = model_and_tokenizer("modernbert", decoder_bias=False)
    network.save_pretrained(no_bias)
    tokenizer.save_pretrained(no_bias)
    new = tmp_path / "new"
    for arguments, says in (
        (("rescale", model, "--factor", "2", "--output", full), "not an empty folder"),
        (("rescale", model, "--factor", "2", "--output", full / "file"), "not an empty folder"),
        (("undo", model, "--output", full), "not an empty folder"),
        (("rescale", tmp_path / "none", "--factor", "2", "--output", new), "none"),
        (("rescale", no_bias, "--bias-offset", "auto", "--texts", texts, "--output", new), "no bias"),
        (("rescale", no_bias, "--bias-offset", "1", "--texts", texts, "--output", new), "no bias"),
        (("show", tmp_path / "none"), "none"),
        (("show", full), "config.json"),
        (("show", model, "--plot", tmp_path / "norms.bmp"), ".png"),
        (("show", model, "--plot", tmp_path / "nowhere" / "norms.png"), "no folder"),
        (("show", model, "--limit", "3"), "--texts"),
        (("suggest", model, "--texts", tmp_path / "none.jsonl"), "none.jsonl"),
    ):
        status, out, err = head(*arguments)
        assert status == 2 and err.count("\n") == 1 and err.startswith("error: ") and says in err and out == "", (
            arguments
        )
    assert (
        sorted(path.name for path in tmp_path.iterdir()) == ["full", "no-bias"]
        and (full / "file").read_text() == "kept"
    )


def test_help_says_what_there_is():
    done = command("--help")
    assert done.returncode == 0 and all(
        word in done.stdout for word in ("show", "rescale", "undo", "suggest", "examples:")
    )
    done = command("rescale", "--help")
    assert done.returncode == 0 and all(
        word in done.stdout for word in ("--factor", "--scope", "--bias-offset", "per-term")
    )
