"""Comparing two runs: values by hand, and scipy's own tests."""

import json
import random

import pytest
from scipy import stats

from pyserini_rescale.cli import main
from pyserini_rescale.regression.significance import compare_values
from pyserini_rescale.regression.spec import is_measure

A = {"q1": 0.5, "q2": 0.25, "q3": 1.0, "q4": 0.0, "q5": 0.5}
B = {"q1": 1.0, "q2": 0.25, "q3": 0.5, "q4": 0.5, "q5": 1.0}


def test_means_wins_ties_and_losses():
    found = compare_values("RR@10", A, B)
    assert (found.a, found.b, found.difference) == pytest.approx((0.45, 0.65, 0.2))
    assert (found.wins, found.ties, found.losses) == (3, 1, 1)
    assert found.largest(2) == [("q1", 0.5, 1.0), ("q3", 1.0, 0.5)]


def test_the_t_test_is_scipys_paired_one():
    found = compare_values("RR@10", A, B)
    assert found.p == pytest.approx(stats.ttest_rel(list(A.values()), list(B.values())).pvalue)


def test_the_randomisation_test_is_near_the_exact_share():
    """Of the 16 signs of four differences of 0.5, ten give a sum as far from 0 as 1.0: p = 10 / 16."""
    found = compare_values("RR@10", A, B, "randomisation")
    assert found.p == pytest.approx(10 / 16, abs=0.01)
    assert compare_values("RR@10", A, B, "randomisation").p == found.p


@pytest.mark.parametrize("test", ["t-test", "randomisation"])
def test_chance_and_no_chance(test):
    draw = random.Random(0)
    a = {f"q{number}": draw.random() for number in range(100)}
    assert compare_values("m", a, a, test).p == 1.0
    assert compare_values("m", a, {name: value + draw.uniform(0.0, 0.1) for name, value in a.items()}, test).p < 0.001
    assert compare_values("m", a, {name: value + draw.gauss(0, 0.1) for name, value in a.items()}, test).p > 0.01


def test_the_command(tmp_path, capsys):
    (tmp_path / "qrels").write_text("q1 0 a 1\nq2 0 a 1\nq3 0 a 1\n")
    (tmp_path / "a").write_text("q1 Q0 a 1 9 t\nq2 Q0 b 1 9 t\nq2 Q0 a 2 8 t\n")
    (tmp_path / "b").write_text("q1 Q0 a 1 9 t\nq2 Q0 a 1 9 t\nq3 Q0 a 1 9 t\n")
    files = [str(tmp_path / name) for name in ("a", "b")]
    options = ["--qrels", str(tmp_path / "qrels"), "--measures", "RR@10"]
    assert main(["regress", "compare", *files, *options, "--test", "randomisation"]) == 0
    out = capsys.readouterr().out
    assert "RR@10  0.5000  1.0000  +0.5000        2      1      0" in out
    assert out.index("q3") < out.index("q2  ")
    assert main(["regress", "compare", *files, *options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["queries"]["q2"] == [0.5, 1.0]
    assert main(["regress", "compare", *files, "--qrels", str(tmp_path / "nowhere")]) == 2


def test_runs_and_qrels_that_have_nothing_in_common_are_refused(tmp_path, capsys):
    (tmp_path / "qrels").write_text("q1 0 a 1\nq2 0 a 1\n")
    (tmp_path / "a").write_text("q1 Q0 a 1 9 t\n")
    (tmp_path / "b").write_text("other Q0 a 1 9 t\n")
    options = ["--qrels", str(tmp_path / "qrels"), "--measures", "RR@10"]
    assert main(["regress", "compare", str(tmp_path / "a"), str(tmp_path / "b"), *options]) == 2
    assert "answers none of the 2 queries" in capsys.readouterr().err
    assert main(["regress", "compare", str(tmp_path / "a"), str(tmp_path / "a"), *options]) == 0
    assert "answers 1 of 2 judged queries" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["nDCG@0", "R@-1"])
def test_a_cutoff_that_would_end_the_process_is_refused(tmp_path, capsys, name):
    (tmp_path / "qrels").write_text("q1 0 a 1\n")
    (tmp_path / "a").write_text("q1 Q0 a 1 9 t\n")
    run = str(tmp_path / "a")
    assert main(["regress", "compare", run, run, "--qrels", str(tmp_path / "qrels"), "--measures", name]) == 2
    assert name in capsys.readouterr().err
    assert not is_measure(name)
