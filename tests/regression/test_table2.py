"""The paper's models as regressions: what is planned, reported, drawn and written about them, without a network."""

import csv
import io
import json
import socket

import pytest

from pyserini_rescale import yaml_files
from pyserini_rescale.cli import main
from pyserini_rescale.regression import catalogue, planning, runner
from pyserini_rescale.regression.spec import Figure
from pyserini_rescale.regression.verify import FAIL, MISSING, OK, verdict

BEIR = [
    "arguana", "climate-fever", "dbpedia-entity", "fever", "fiqa", "hotpotqa", "nfcorpus", "nq", "quora", "scidocs",
    "scifact", "trec-covid", "webis-touche2020",
]  # fmt: skip
# Table 2 of arXiv 2606.18811: MRR@10 and Recall@1000 on dev, nDCG@10 on DL 2019 and BEIR-13.
TABLE = """\
bert-base.k1 .254 .931 .594 .370
distilbert-base.k1 .259 .936 .594 .383
albert-base.k1 .255 .926 .530 .361
gte-mlm-base.k1 .273 .953 .635 .403
roberta-base.k1 .194 .900 .554 .331
roberta-base.k2 .226 .934 .590 .386
roberta-base.k4 .228 .933 .605 .383
roberta-base.k8 .173 .875 .468 .328
roberta-base.k16 .000 .008 .000 .004
modernbert-base.k1 .045 .554 .266 .127
modernbert-base.k2 .201 .909 .502 .351
modernbert-base.k4 .214 .925 .570 .373
modernbert-base.k8 .248 .948 .588 .405
modernbert-base.k16 .250 .948 .609 .400
ettin-150m.k1 .099 .752 .354 .221
ettin-150m.k2 .118 .777 .416 .244
ettin-150m.k4 .175 .890 .530 .332
ettin-150m.k8 .178 .899 .538 .330
ettin-150m.k16 .238 .940 .587 .391
"""
PLACES = [("msmarco-dev", "RR@10"), ("msmarco-dev", "R@1000"), ("dl19", "nDCG@10"), ("beir-13", "nDCG@10")]
FAILED = {"roberta-base.k16", "modernbert-base.k1", "ettin-150m.k1", "ettin-150m.k2"}


@pytest.fixture(scope="module")
def ours() -> catalogue.Catalogue:
    return catalogue.load(yaml_files.default_folder())


@pytest.fixture(autouse=True)
def no_network(monkeypatch, tmp_path):
    def refuse(*given, **named):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for variable in (planning.DATA_VARIABLE, planning.MODELS_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)


def test_the_report_has_all_rows_of_the_paper_and_nothing_measured(capsys):
    assert main(["regress", "report", "--suite", "table2"]) == 4
    lines = capsys.readouterr().out.splitlines()
    found = {line.split()[0]: line.split()[1:] for line in lines[1:-1]}
    assert list(found) == [line.split()[0] for line in TABLE.splitlines()]
    for line in TABLE.splitlines():
        model, *values = line.split()
        assert found[model][:-1:3] == values and found[model][-1] == "MISSING"
        assert set(found[model][1:-1:3]) == set(found[model][2:-1:3]) == {"-"}
    assert lines[-1] == "76 figures: MISSING"


def test_the_report_in_every_format(capsys):
    assert main(["regress", "report", "--suite", "table2", "--format", "csv"]) == 4
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    published = {(row["model"], row["collection"], row["measure"]): float(row["published"]) for row in rows}
    expected = {
        (line.split()[0], *place): float(value)
        for line in TABLE.splitlines()
        for place, value in zip(PLACES, line.split()[1:], strict=True)
    }
    assert published == expected and len(rows) == 76
    assert all(row["measured"] == row["difference"] == "" and row["verdict"] == MISSING for row in rows)
    assert main(["regress", "report", "--suite", "table2", "--format", "json"]) == 4
    assert len(json.loads(capsys.readouterr().out)["cells"]) == 76
    assert main(["regress", "report", "--suite", "table2", "--format", "markdown"]) == 4
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 21 and len({line.count("|") for line in lines}) == 1


def test_a_plan_has_every_command_from_training_to_beir(capsys):
    assert main(["regress", "plan", "modernbert-base.k16"]) == 0
    out = capsys.readouterr().out
    commands = [line for line in out.splitlines() if line and not line.startswith("#")]
    assert commands[0].startswith("python -m pyserini_rescale.regression.head_figures --config table2:modernbert.k16 ")
    assert commands[1] == (
        "deepspeed --num_gpus 8 --no_local_rank --module pyserini_rescale train --config table2:modernbert.k16 "
        "--output runs/modernbert-base.k16/training"
    )
    for name in ["msmarco-dev", *BEIR]:
        own = [line for line in commands if f"runs/{name}.modernbert-base.k16/" in line and "dl19." not in line]
        modules = [line.split(" -m ")[1].split()[0] for line in own]
        assert modules == [
            "pyserini_rescale", "pyserini.encode", "pyserini.index.lucene", "pyserini_rescale.regression.index_stats",
            "pyserini.search.lucene", "pyserini_rescale.regression.query_stats",
        ]  # fmt: skip
    # The passages of DL 2019 are those of dev: they are encoded and indexed once.
    dl19 = [line for line in commands if "runs/dl19." in line]
    assert len(dl19) == 3 and "--index runs/msmarco-dev.modernbert-base.k16/index" in dl19[1]
    assert len(commands) == 2 + 14 * 6 + 3 and "# 89 stages, 89 would run" in out
    assert "beir-13.modernbert-base.k16: about" in out and not list(planning.Path().iterdir())


def test_queries_own_documents_are_removed_where_beir_does(ours):
    for name in BEIR:
        spec = ours.regressions[f"{name}.bert-base.k1"].collection
        assert spec.remove_query == (name in ("arguana", "quora"))
    assert ours.regressions["dl19.bert-base.k1"].collection.measures == [
        "nDCG@10", "RR(rel=2)@10", "R(rel=2)@1000",
    ]  # fmt: skip


def test_tolerances_and_upper_bounds(ours):
    for line in TABLE.splitlines():
        model = line.split()[0]
        for collection, measure in PLACES:
            figure = ours.regressions[f"{collection}.{model}"].expected.measures[measure]
            assert (figure.at_most is not None) == (model in FAILED)
            if figure.tolerance is not None:
                assert figure.tolerance == (0.015 if measure == "nDCG@10" else 0.010)
            else:
                assert figure.published < figure.at_most


def test_an_upper_bound_is_for_what_shall_fail():
    figure = Figure(published=0.045, at_most=0.147)
    assert [verdict(figure, value) for value in (0.0, 0.045, 0.147, 0.148, None)] == [OK, OK, OK, FAIL, MISSING]


def test_row_norms_are_those_of_the_paper(ours):
    model = ours.regressions["beir-13.roberta-base.k4"].model
    assert {name: figure.published for name, figure in model.head.items()} == {
        "row_norm_mean": 3.645, "row_norm_max": 4.480, "rescaled_row_norm_mean": 0.91,
    }  # fmt: skip


def test_suites(ours):
    assert len(ours.choose([], "table2")) == 57
    assert len(ours.choose([], "figure3")) == 35 and len(ours.choose([], "figure2")) == 54
    assert "scifact.splade-tiny" in [one.name for one in ours.choose([], "ci")]
    assert [one.name for one in ours.choose(["dl19.ettin-150m.k1*"])] == ["dl19.ettin-150m.k1", "dl19.ettin-150m.k16"]
    assert all(not one.is_part for one in ours.choose(["*"]))
    assert ours.choose(["scifact.bert-base.k1"])[0].is_part


def test_unknown_suites_and_nothing_named(capsys):
    assert main(["regress", "run", "--suite", "table3"]) == 2
    assert "no suite is called table3: there are table2," in capsys.readouterr().err
    assert main(["regress", "run"]) == 2
    assert "name regressions, a model or --suite" in capsys.readouterr().err


def test_figure_2_trains_a_model_for_each_pair_of_lambdas(ours):
    one = ours.regressions["nanobeir.modernbert.k16.q1e-2.d6e-4"]
    plan = runner.plan(one, runner.Options(), {})
    assert len(plan.parts) == 13
    train = next(stage for stage in plan.parts[0].stages if stage.name == "train")
    assert "figure2:modernbert.k16.q1e-2.d6e-4" in train.argv


def test_points_of_figure_3_that_table_2_does_not_have(ours):
    plan = runner.plan(ours.regressions["msmarco-dev.bert-base.k8"], runner.Options(), {})
    train = next(stage for stage in plan.stages if stage.name == "train").argv
    assert ("table2:bert.k1", "--set", "rescale.factor=8") == train[train.index("--config") + 1 :][:3]


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_figures_show_published_values_before_anything_is_measured(tmp_path, capsys, number, suffix):
    path = tmp_path / f"figure{suffix}"
    assert main(["regress", "figure", str(number), "--output", str(path)]) == 0
    assert path.stat().st_size > 5000 and "35 of 35 models have no result yet" in capsys.readouterr().err


@pytest.mark.parametrize("number", [2, 4])
def test_figures_without_any_value_are_refused(tmp_path, capsys, number):
    assert main(["regress", "figure", str(number), "--output", str(tmp_path / "figure.png")]) == 2
    assert "the paper prints no values" in capsys.readouterr().err and not (tmp_path / "figure.png").exists()


def test_pages_are_checked(tmp_path, capsys):
    folder = tmp_path / "pages"
    assert main(["regress", "pages", "--output", str(folder)]) == 0
    assert main(["regress", "pages", "--output", str(folder), "--check"]) == 0
    page = folder / "table2.md"
    assert "modernbert-base.k16 | `table2:modernbert.k16`" in page.read_text()
    assert str(planning.Path.home()) not in page.read_text() + (folder / "splade-tiny.md").read_text()
    page.write_text(page.read_text().replace("0.370", "0.371"))
    (folder / "old.md").touch()
    (folder / "figure2.md").unlink()
    capsys.readouterr()
    assert main(["regress", "pages", "--output", str(folder), "--check"]) == 1
    out = capsys.readouterr().out
    assert "table2.md is out of date" in out and "figure2.md is missing" in out and "old.md belongs to no file" in out


def test_the_pages_of_this_checkout_are_what_they_would_be():
    from pyserini_rescale.regression import pages

    folder = yaml_files.default_folder()
    found = pages.differences(pages.pages(catalogue.load(folder)), folder.parent / "docs" / "regressions")
    assert found == [], "write them anew: python -m pyserini_rescale regress pages"
