"""Whole small runs: what they write, what stops them, and that the fused head computes what the plain one does."""

import json

import pytest
from safetensors.torch import load_file

from pyserini_rescale.train.monitors import FIGURES, read_log
from tests.train.conftest import launch

pytestmark = pytest.mark.slow

_EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
DENSE = {"every": 1, "tensorboard": False, "collapse": {"dense": 0.01, "patience": 2, "after": 0.0}}


def test_a_dense_run_is_stopped_with_the_reason(config, tmp_path):
    done = launch(["--config", config(max_steps=8, monitors=DENSE)], check=False)
    assert done.returncode == 3
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: training collapsed: dense vectors")
    assert "Traceback" not in done.stderr
    assert len(read_log(tmp_path / "run" / "log.jsonl")) == 2
    assert json.loads((tmp_path / "run" / "run.json").read_text())["state"] == "collapsed"
    assert not (tmp_path / "run" / "model").exists()


def test_a_dense_run_goes_on_with_a_warning(config, tmp_path):
    done = launch(["--config", config(max_steps=4, monitors=DENSE), "--on-collapse", "warn"])
    assert done.stdout.count("warning: dense vectors") + done.stderr.count("warning: dense vectors") == 1
    assert (tmp_path / "run" / "model" / "config.json").exists()


def test_fused_and_plain_head_train_alike_and_all_is_logged(config, tmp_path):
    """Without dropout: the two draw the same numbers, but the order of their operations may differ."""
    from tests.train.conftest import save_backbone

    calm = save_backbone(tmp_path / "calm", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    for name, fused in (("fused", True), ("plain", False)):
        path = config(
            name, backbone={"name": calm}, max_steps=5, monitors={"every": 2, "tensorboard": True},
            compute={"fused_head": fused}, text={"query_length": 8, "document_length": 12, "special_tokens": False},
        )  # fmt: skip
        launch(["--config", path])
    fused, plain = (read_log(tmp_path / name / "log.jsonl") for name in ("fused", "plain"))
    assert [line["step"] for line in fused] == [1, 2, 4, 5]  # the first, every second, and the last
    for one, other in zip(fused, plain, strict=True):
        assert set(one) == set(FIGURES)
        for key in set(FIGURES) - {"steps_per_second"}:
            assert one[key] == pytest.approx(other[key], rel=1e-4), key
    first, second = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("fused", "plain"))
    for name in first:
        assert (first[name] - second[name]).abs().max() < 1e-4
    assert list((tmp_path / "fused" / "tensorboard").glob("events.out.tfevents.*"))


@pytest.mark.parametrize(("scope", "matrix"), [("untied", "cls.predictions.decoder.weight"), ("shared", _EMBEDDINGS)])
def test_the_head_moves_a_kth_as_far_where_asked(config, tmp_path, scope, matrix):
    """Adam's first step is the learning rate in every element that has a gradient, whatever the gradient's size."""
    for name, rate in (("plain", 1.0), ("kept", "1/k")):
        path = config(
            name, max_steps=1, rescale={"factor": 8, "scope": scope},
            optimizer={"learning_rate": 1e-3, "warmup_ratio": 0.0, "head_rate": rate},
        )  # fmt: skip
        launch(["--config", path])
        before, after = (load_file(tmp_path / name / folder / "model.safetensors") for folder in ("start", "model"))
        moved = {key: float((after[key] - before[key]).abs().max()) for key in before}
        assert moved[matrix] == pytest.approx(1e-3 / (8 if rate == "1/k" else 1), rel=1e-2)
        assert moved["bert.encoder.layer.0.output.dense.weight"] == pytest.approx(1e-3, rel=1e-2)


def test_bad_rows_stop_the_run_or_are_counted(config, tmp_path, triples):
    lines = open(triples, encoding="utf-8").read().splitlines()
    bad = tmp_path / "bad.jsonl"
    bad.write_text("\n".join([lines[0], '{"query": "a", "positive": null, "negative": "b"}', *lines[1:]]) + "\n")
    path = config(data={"files": [str(bad)]}, max_steps=2)
    done = launch(["--config", path], check=False)
    assert done.returncode == 2
    assert f"{bad} line 2" in done.stderr or f"{bad}, line 2" in done.stderr
    assert not (tmp_path / "run").exists()
    done = launch(["--config", path, "--skip-bad"])
    assert "left out 1 bad of 49 rows" in done.stderr
