"""What regressions share is made once: a model's training, an index; and how an interrupted training goes on."""

import io
import json
import sys

import pytest

from pyserini_rescale.errors import StageError
from pyserini_rescale.regression import catalogue, planning, runner
from pyserini_rescale.regression.stages import Stage, Workplace, executed, run_stage

from .test_runner import write_trained


@pytest.fixture
def two(toys):
    """made.k2 on toys and on more, which has its documents."""
    write_trained(toys)
    text = (toys / "specs" / "collections" / "toys.yaml").read_text()
    (toys / "specs" / "collections" / "more.yaml").write_text(
        text.replace("name: toys", "name: more") + "index_of: toys\n"
    )
    path = toys / "specs" / "models" / "made.k2.yaml"
    path.write_text(path.read_text() + "  more: {}\n")
    return toys


def plans(toys, triples: str = "toys") -> list[runner.Plan]:
    write_path = toys / "specs" / "models" / "made.k2.yaml"
    write_path.write_text(write_path.read_text().replace("triples: toys", f"triples: {triples}"))
    chosen = catalogue.choose(["made.k2"], toys / "specs")
    options = runner.Options(toys / "data", toys / "models", root=toys / "runs")
    return [runner.plan(one, options, {}) for one in chosen]


def test_a_model_is_trained_once_and_an_index_made_once(two):
    first, second = plans(two)
    train, encode, index = (
        [next(step for step in plan.steps if step.stage.name == name) for plan in (first, second)]
        for name in ("train", "encode", "index")
    )
    assert train[0] == train[1] and str(train[0].place.work) == str(two / "runs" / "made.k2")
    assert [step.place.work for step in (*encode, *index)] == [two / "runs" / "toys.made.k2"] * 4
    assert str(first.layout.index) == str(second.layout.index)
    names = [step.stage.name for step in second.steps if step.place.work == two / "runs" / "more.made.k2"]
    assert names == ["collection", "search", "queries"]
    assert len(planning.steps_of([first, second])) == 2 + 6 + 3


def test_a_model_of_own_triples_is_trained_for_each_collection(two):
    first, second = plans(two, "own")
    places = [next(step for step in plan.steps if step.stage.name == "train").place.work for plan in (first, second)]
    assert places == [two / "runs" / "toys.made.k2", two / "runs" / "more.made.k2"]


def test_a_training_that_failed_is_not_tried_again_for_the_next_collection(two, monkeypatch):
    tried = []

    def fail(stage, place, **options):
        tried.append((place.work.name, stage.name))
        if stage.name == "train":
            raise StageError("stage train failed")
        return {}

    monkeypatch.setattr(runner.stage_module, "run_stage", fail)
    session = runner.Session(show=io.StringIO(), hook=True)
    results = list(runner.run_all(plans(two), session))
    assert tried.count(("made.k2", "train")) == 1
    assert [result["exit_code"] for result in results] == [3, 3] and runner.status_of(results) == 3


def test_a_head_that_is_not_the_papers_stops_before_training(two, monkeypatch):
    path = two / "specs" / "models" / "made.k2.yaml"
    path.write_text(path.read_text() + "head:\n  row_norm_mean: {published: 2.553, tolerance: 0.003}\n")
    tried = []

    def pretend(stage, place, **options):
        tried.append(stage.name)
        if stage.name == "head":
            stage.output.parent.mkdir(parents=True, exist_ok=True)
            stage.output.write_text(json.dumps({"row_norm_mean": 1.4}))
        return {}

    monkeypatch.setattr(runner.stage_module, "run_stage", pretend)
    show = io.StringIO()
    result = runner.run(plans(two)[0], runner.Session(show=show, hook=True))
    assert tried == ["head"] and result["verdict"] == "FAIL"
    assert "train        not run: row norm mean is 1.400, 2.553 is expected" in show.getvalue()


TRAIN = """
import pathlib, sys
folder = pathlib.Path(sys.argv[1]); folder.mkdir(exist_ok=True)
if sys.argv[2:] != ["--resume"]:
    assert not list(folder.iterdir())
    (folder / "checkpoint").write_text("half")
    raise SystemExit(9)
(folder / "model").write_text((folder / "checkpoint").read_text() + " whole")
"""


def test_an_interrupted_stage_goes_on_where_it_can(tmp_path):
    work = tmp_path / "work"
    place = Workplace(work, {"{work}": work})
    train = Stage("train", ("python", "-c", TRAIN, str(work / "training")), (), work / "training", resumes=True)
    for _ in range(2):  # without resume it begins anew, and fails as before
        with pytest.raises(StageError):
            run_stage(train, place, show=io.StringIO())
    assert run_stage(train, place, resume=True, show=io.StringIO())["state"] == "ran"
    assert (work / "training" / "model").read_text() == "half whole"
    record = json.loads((work / "records" / "train.json").read_text())
    assert "--resume" not in record["argv"]
    assert run_stage(train, place, resume=True, show=io.StringIO())["state"] == "up to date"


def test_a_launcher_is_the_one_beside_this_python(tmp_path, monkeypatch):
    python, launcher = tmp_path / "python", tmp_path / "deepspeed"
    python.touch()
    monkeypatch.setattr(sys, "executable", str(python))
    stage = Stage("train", ("deepspeed", "--module", "x"), (), tmp_path / "out")
    assert executed(stage, hook=True)[0] == "deepspeed"
    launcher.touch()
    assert executed(stage, hook=False) == [str(launcher), "--module", "x"]
