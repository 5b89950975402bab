"""Measures against values worked out by hand with trec_eval's rules."""

import math

import pytest

from pyserini_rescale.errors import ConfigError, DataError
from pyserini_rescale.regression.measures import Hit, by_rank, evaluate, per_query, ranked, read_qrels, read_run


def run_of(**queries: list[tuple[str, float]]) -> dict[str, list[Hit]]:
    """Hits in the order given, ranked from 1."""
    return {
        query: [Hit(document, rank, score) for rank, (document, score) in enumerate(hits, 1)]
        for query, hits in queries.items()
    }


def test_ties_fall_to_the_higher_document_id():
    run = run_of(q=[("a", 5), ("b", 5), ("c", 4)])
    assert evaluate(["RR@10", "RR"], {"q": {"a": 1}}, run) == {"RR@10": 0.5, "RR": 0.5}
    assert by_rank(["RR@10", "RR"], {"q": {"a": 1}}, run) == {"RR@10": 1.0, "RR": 1.0}


def test_ids_are_compared_as_strings_in_ties():
    assert ranked(run_of(q=[("10", 1), ("9", 1), ("100", 1)])["q"]) == ["9", "100", "10"]


def test_scores_are_compared_as_32_bit_floats():
    """2**24 and 2**24 + 1 are one float32, hence a tie, in trec_eval; 1e-9 apart around 1 as well."""
    assert ranked(run_of(q=[("a", 2**24 + 1), ("b", 2**24)])["q"]) == ["b", "a"]
    assert ranked(run_of(q=[("a", 1 + 1e-9), ("b", 1)])["q"]) == ["b", "a"]
    assert ranked(run_of(q=[("a", 1e40), ("b", -1e40)])["q"]) == ["a", "b"]


def test_score_wins_over_rank_column():
    run = {"q": [Hit("low", 1, 1.0), Hit("high", 2, 2.0)]}
    assert evaluate(["RR@10"], {"q": {"high": 1}}, run) == {"RR@10": 1.0}
    assert by_rank(["RR@10"], {"q": {"high": 1}}, run) == {"RR@10": 0.5}


def test_judged_queries_without_hits_count_as_zero():
    qrels = {"q1": {"a": 1}, "q2": {"a": 1}, "q3": {"a": 1}, "q4": {"a": 1}}
    run = run_of(q1=[("a", 1)], q2=[("b", 1)])
    assert evaluate(["nDCG@10", "RR@10", "R@100"], qrels, run) == {"nDCG@10": 0.25, "RR@10": 0.25, "R@100": 0.25}


def test_a_run_without_any_hit_is_zero():
    assert evaluate(["nDCG@10", "RR@10", "R@1000"], {"q": {"a": 1}}, {}) == {
        "nDCG@10": 0.0,
        "RR@10": 0.0,
        "R@1000": 0.0,
    }


def test_queries_that_are_not_judged_do_not_count():
    run = run_of(q1=[("a", 1)], stranger=[("b", 1)])
    assert evaluate(["RR@10", "nDCG@10"], {"q1": {"a": 1}}, run) == {"RR@10": 1.0, "nDCG@10": 1.0}


def test_graded_unjudged_and_negative_documents():
    """Gains are the grades themselves; unjudged documents and grades below 1 gain nothing."""
    qrels = {"q": {"three": 3, "one": 1, "zero": 0, "minus": -2}}
    run = run_of(q=[("minus", 9), ("one", 8), ("unjudged", 7), ("three", 6), ("zero", 5)])
    gained = 1 / math.log2(3) + 3 / math.log2(5)
    ideal = 3 / math.log2(2) + 1 / math.log2(3)
    found = evaluate(["nDCG@10", "nDCG@2", "RR@10", "R@3", "RR(rel=2)@10", "R(rel=2)@3", "R(rel=2)@4"], qrels, run)
    assert found == pytest.approx({
        "nDCG@10": gained / ideal, "nDCG@2": (1 / math.log2(3)) / ideal, "RR@10": 0.5, "R@3": 0.5,
        "RR(rel=2)@10": 0.25, "R(rel=2)@3": 0.0, "R(rel=2)@4": 1.0,
    })  # fmt: skip


def test_a_query_without_relevant_documents_counts_as_zero():
    qrels = {"q1": {"a": 1}, "q2": {"a": 0}}
    run = run_of(q1=[("a", 1)], q2=[("a", 1)])
    assert evaluate(["nDCG@10", "RR@10", "R@10"], qrels, run) == {"nDCG@10": 0.5, "RR@10": 0.5, "R@10": 0.5}


def test_cut_off_of_reciprocal_rank():
    hits = [(f"d{number:02}", 100 - number) for number in range(12)]
    assert evaluate(["RR@10"], {"q": {"d09": 1}}, run_of(q=hits)) == pytest.approx({"RR@10": 0.1})
    assert evaluate(["RR@10"], {"q": {"d10": 1}}, run_of(q=hits)) == {"RR@10": 0.0}


def test_relevant_documents_that_the_corpus_lacks_count():
    assert evaluate(["R@10"], {"q": {"a": 1, "gone": 1}}, run_of(q=[("a", 1)])) == {"R@10": 0.5}


@pytest.mark.parametrize("seed", range(5))
def test_agreement_with_trec_eval(seed):
    """Against trec_eval's own code, which gets the scores as they are: ties, missing queries, graded and unjudged documents.

    It has no RR@10, so the run is cut to what it ranks first.
    """
    import random

    import pytrec_eval

    draw = random.Random(seed)
    documents = [f"d{number}" for number in range(40)]
    qrels = {f"q{n}": {name: draw.choice([0, 0, 1, 2, 3]) for name in draw.sample(documents, 12)} for n in range(12)}
    for grades in qrels.values():
        grades[draw.choice(documents)] = 1
    run = run_of(**{
        query: sorted(((name, draw.randint(1, 5)) for name in draw.sample(documents, 30)), key=lambda hit: -hit[1])
        for query in list(qrels)[:10]  # two queries are missing
    })  # fmt: skip
    run["q1"] = [Hit("nothing", 1, 3.0)]
    scores = {query: {hit.document: hit.score for hit in hits} for query, hits in run.items()}
    theirs = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10", "recall.20"}).evaluate(scores)
    top = {query: {name: scores[query][name] for name in ranked(hits)[:10]} for query, hits in run.items()}
    first = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank"}).evaluate(top)
    expected = {
        "nDCG@10": sum(one["ndcg_cut_10"] for one in theirs.values()) / len(qrels),
        "R@20": sum(one["recall_20"] for one in theirs.values()) / len(qrels),
        "RR@10": sum(one["recip_rank"] for one in first.values()) / len(qrels),
    }
    assert evaluate(expected, qrels, run) == pytest.approx(expected, abs=1e-9)
    assert all(expected.values())


def test_values_of_queries_are_those_behind_the_mean():
    qrels = {"q1": {"a": 1}, "q2": {"a": 1, "b": 2}, "q3": {"a": 1}}
    run = run_of(q1=[("b", 2), ("a", 1)], q2=[("b", 5), ("c", 5), ("a", 1)], stranger=[("a", 1)])
    names = ["nDCG@10", "RR@10", "R(rel=2)@10"]
    values = per_query(names, qrels, run)
    assert {name: sum(value.values()) / 3 for name, value in values.items()} == pytest.approx(
        evaluate(names, qrels, run)
    )
    assert values["RR@10"] == {"q1": 0.5, "q2": 0.5, "q3": 0.0}


def test_unknown_measure():
    with pytest.raises(ConfigError, match="nDGC"):
        evaluate(["nDGC@10"], {"q": {"a": 1}}, {})


def test_files(tmp_path):
    (tmp_path / "qrels").write_text("1 0 a 2\n1\t0\tb\t-1\n")
    (tmp_path / "run").write_text("1 Q0 b 1 3.500000 Anserini\n1 Q0 a 2 3.000000 Anserini\n")
    assert read_qrels(tmp_path / "qrels") == {"1": {"a": 2, "b": -1}}
    assert read_run(tmp_path / "run") == {"1": [Hit("b", 1, 3.5), Hit("a", 2, 3.0)]}
    (tmp_path / "empty").touch()
    assert read_run(tmp_path / "empty") == {}


@pytest.mark.parametrize(
    "line", ["1 Q0 a 2 3.0", "1 Q0 a b 2 3.0 tag", "1 Q0 a x 3.0 t", "1 Q0 a 2 high t", "1 Q0 a 2 nan t", ""]
)
def test_bad_run_lines_are_named(tmp_path, line):
    (tmp_path / "run").write_text(f"1 Q0 z 1 9.0 t\n{line}\n")
    with pytest.raises(DataError, match="run line 2"):
        read_run(tmp_path / "run")


def test_a_document_twice_in_a_run_is_refused(tmp_path):
    (tmp_path / "run").write_text("1 Q0 a 1 9 t\n1 Q0 a 2 8 t\n")
    with pytest.raises(DataError, match="line 2 names document a for a second time"):
        read_run(tmp_path / "run")


@pytest.mark.parametrize("line", ["1 0 a", "1 0 a x", "1 0 a 1.0", "1 0 z 1", ""])
def test_bad_qrels_lines_are_named(tmp_path, line):
    (tmp_path / "qrels").write_text(f"1 0 z 1\n{line}\n")
    with pytest.raises(DataError, match="qrels line 2"):
        read_qrels(tmp_path / "qrels")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (f"q 0 a {2**31}", "beyond 1,000,000"), ("q 0 a 1000001", "beyond"), (f"q 0 a -{'9' * 5000}", "beyond"),
        ("q 0 a\0b 1", "holds a NUL"), ("q\0r 0 a 1", "holds a NUL"),
    ],
)  # fmt: skip
def test_what_would_end_trec_evals_process_is_refused(tmp_path, line, says):
    (tmp_path / "qrels.txt").write_text(f"q 0 z 1000000\n{line}\n")
    with pytest.raises(DataError, match=f"qrels.txt line 2:? .*{says}"):
        read_qrels(tmp_path / "qrels.txt")
    (tmp_path / "qrels.txt").write_text("q 0 z 1000000\nq 0 y 0001\nq 0 x -7\n")
    qrels = read_qrels(tmp_path / "qrels.txt")
    assert evaluate(["RR@10"], qrels, run_of(q=[("x", 2), ("y", 1)])) == {"RR@10": 0.5}


@pytest.mark.parametrize("line", ["q Q0 a\0b 1 1.0 t", "q\0r Q0 a 1 1.0 t"])
def test_a_nul_in_a_run_is_refused(tmp_path, line):
    (tmp_path / "run.txt").write_text(f"{line}\n")
    with pytest.raises(DataError, match="run.txt line 1 .*NUL"):
        read_run(tmp_path / "run.txt")
