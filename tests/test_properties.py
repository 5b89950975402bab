"""Properties: round trips, order independence, monotony and bounds, and equality with a plain reference, of generated inputs."""

import itertools
import json
import math
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from pyserini_rescale import collections, corpora, docstrings
from pyserini_rescale.encode import calibrate, ciff, export, prune, quantize, terms, vectors
from pyserini_rescale.encode.quantize import BYTE, CALIBRATED, MOST, Quantizer
from pyserini_rescale.errors import ConfigError, DataError
from pyserini_rescale.regression import measures
from pyserini_rescale.regression.measures import Hit

# Without a database and a clock: the same examples in every run.
settings.register_profile(
    "here", max_examples=60, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
quick = settings(settings.get_profile("here"))
NUMBERS = itertools.count()

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
LETTER = st.characters(exclude_categories=["Cs"], exclude_characters="\0").filter(lambda letter: not letter.isspace())
WORD = st.text(LETTER, min_size=1, max_size=8)
TERM = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8).filter(terms.survives)
IMPACT = st.integers(1, MOST)
VECTOR = st.dictionaries(TERM, IMPACT, max_size=6)
WEIGHTS = st.lists(st.floats(0, 80, width=32), max_size=30).map(lambda found: np.array(found, np.float32))
SCALE = st.builds(Quantizer, st.just("any"), st.floats(0.5, 50), st.integers(1, 400))


def new(folder: Path) -> Path:
    """A folder of its own for every example."""
    path = folder / str(next(NUMBERS))
    path.mkdir()
    return path


# Terms


class Tokenizer:
    def __init__(self, tokens: list[str], special: list[int]) -> None:
        self.tokens, self.all_special_ids = tokens, special

    def get_vocab(self) -> dict[str, int]:
        return {token: number for number, token in enumerate(self.tokens)}


TOKENS = st.lists(
    st.one_of(st.text(max_size=6), st.sampled_from(["", " ", "[id:1]", "[id:", "a b", "\ud800", "x" * 255, "x" * 256, "\u2028"])),
    unique=True, max_size=30,
)  # fmt: skip


@quick
@given(TOKENS, st.integers(0, 40))
def test_every_id_has_a_term_of_its_own_that_reads_back(tokens, size):
    found = terms.index_terms(Tokenizer(tokens, []), size)
    assert len(found) == size and len(set(found)) == size
    for number, term in enumerate(found):
        assert terms.survives(term) and term.split() == [term] and term.encode("utf-8")
        if term.startswith(terms.ESCAPE):
            assert int(term[len(terms.ESCAPE) : -1]) == number
        else:
            assert tokens[number] == term


@quick
@given(st.text(max_size=300))
def test_a_term_survives_where_a_whitespace_analyzer_gives_it_back(text):
    whole = text.split() == [text] and text.isprintable() | bool(text)
    if terms.survives(text):
        assert text.split() == [text] and len(text.encode("utf-16-le")) // 2 <= 255
    elif text and len(text) <= 100 and whole:
        assert any(
            ord(letter) < 0x20 or 0x7F <= ord(letter) <= 0x9F or 0xD800 <= ord(letter) <= 0xDFFF for letter in text
        )


@quick
@given(TOKENS, st.lists(st.integers(0, 60)), st.integers(0, 40))
def test_special_ids_are_those_that_the_model_has(tokens, special, size):
    assert terms.special_ids(Tokenizer(tokens, special), size).tolist() == sorted({n for n in special if n < size})


# Quantisers


@quick
@given(WEIGHTS, SCALE)
def test_impacts_are_the_reference_and_never_zero(weights, scale):
    ids = np.arange(len(weights))
    try:
        kept, impacts, clamped = scale.quantize(ids, weights)
    except ConfigError:
        assert max(weights) * scale.quant_range / scale.weight_range > MOST
        return
    # float64's own rounding aside, the exact quotient, halves to even
    exact = [Fraction(float(weight)) * scale.quant_range / Fraction(scale.weight_range) for weight in weights]
    for number, impact in zip(kept.tolist(), impacts.tolist(), strict=True):
        assert 0 < impact <= MOST and abs(impact - exact[number]) <= Fraction(1, 2) + Fraction(1, 10**9)
    for number in set(ids.tolist()) - set(kept.tolist()):
        assert exact[number] <= Fraction(1, 2) + Fraction(1, 10**9)
    assert clamped == 0 and kept.tolist() == sorted(kept.tolist())
    for row in quantize.sparse_impacts(weights[None, :], scale.weight_range, scale.quant_range):
        assert [part.tolist() for part in row] == [kept.tolist(), impacts.tolist()]


@quick
@given(WEIGHTS, SCALE)
def test_larger_weights_have_no_smaller_impacts_in_any_order(weights, scale):
    assume(not len(weights) or max(weights) * scale.quant_range / scale.weight_range <= MOST)
    impacts = quantize.quantize(weights, scale.weight_range, scale.quant_range)
    assert (np.diff(impacts[np.argsort(weights, kind="stable")]) >= 0).all()
    backwards = quantize.quantize(weights[::-1], scale.weight_range, scale.quant_range)
    assert backwards[::-1].tolist() == impacts.tolist()


@quick
@given(WEIGHTS, st.floats(0.1, 50))
def test_a_calibrated_scale_clamps_to_a_byte_and_counts(weights, largest):
    scale = Quantizer(CALIBRATED, largest, BYTE, limit=BYTE)
    kept, impacts, clamped = scale.quantize(np.arange(len(weights)), weights)
    plain = np.rint(weights.astype(np.float64) * BYTE / largest)
    assert impacts.tolist() == np.minimum(plain, BYTE)[plain > 0].tolist()
    assert clamped == (plain > BYTE).sum() and kept.tolist() == np.flatnonzero(plain > 0).tolist()


@quick
@given(SCALE, st.integers(1, 20))
def test_scales_are_equal_where_their_impacts_are(scale, times):
    one = (scale.weight_range, scale.quant_range)
    other = (scale.weight_range * times, scale.quant_range * times)
    assert quantize.same_scale(one, other) and quantize.same_scale(other, one)
    assert not quantize.same_scale(one, (scale.weight_range * 1.001, scale.quant_range))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=2),
    max_leaves=3,
)


@quick
@given(SCALE, st.sampled_from(["name", "weight_range", "quant_range", "limit"]), JSON)
def test_a_scale_in_json_is_one_or_refused(scale, key, value):
    plain = {"name": scale.name, "weight_range": scale.weight_range, "quant_range": scale.quant_range, "limit": None}
    assert quantize.from_json(json.loads(json.dumps(plain))) == scale
    try:
        found = quantize.from_json({**plain, key: value})
    except ValueError:
        return
    assert found.quantize(np.arange(1), np.zeros(1, np.float32))[1].size == 0
    assert 0 < found.weight_range < math.inf and 0 < found.quant_range


@quick
@given(WEIGHTS, st.integers(1, 10), st.floats(0.01, 1))
def test_pruning_keeps_the_largest(weights, most, share):
    ids = np.arange(len(weights))
    for pruning in (prune.Pruning(), prune.Pruning(most), prune.Pruning(None, share), prune.Pruning(most, share)):
        kept, values = pruning.apply(ids, weights)
        assert values.tolist() == weights[kept].tolist() and kept.tolist() == sorted(kept.tolist())
        left = np.delete(weights, kept)
        if len(left) and len(values):
            assert left.max() <= values.min()


@quick
@given(st.lists(st.integers(0, 5), min_size=2, max_size=12), st.randoms())
def test_kendalls_tau_does_not_depend_on_order_and_is_bounded(scores, chance):
    other = chance.sample(scores, len(scores))
    one, two = np.array(scores, float), np.array(other, float)
    tau = calibrate._tau_b(one, two)
    assert -1 - 1e-12 <= tau <= 1 + 1e-12 and tau == pytest.approx(calibrate._tau_b(two, one))
    order = np.array(chance.sample(range(len(scores)), len(scores)))
    assert calibrate._tau_b(one[order], two[order]) == pytest.approx(tau)
    assert calibrate._tau_b(one, one) == pytest.approx(1.0 if len(set(scores)) > 1 else 0.0)


# Vectors


@quick
@given(st.dictionaries(WORD, VECTOR, min_size=1, max_size=8), st.integers(1, 4), st.booleans())
def test_vectors_read_back_and_count_the_same_however_they_are_divided(tmp_path, found, parts, packed):
    import gzip

    folder, lines = new(tmp_path), [json.dumps({"id": name, "vector": vector}) + "\n" for name, vector in found.items()]
    for number in range(parts):
        data = "".join(lines[number::parts]).encode()
        path = folder / f"{number}.jsonl{'.gz' if packed else ''}"
        path.write_bytes(gzip.compress(data) if packed else data)
    assert {name: vector for _, name, vector in vectors.read_distinct(folder)} == found
    counts = vectors.count_vectors(folder)
    assert counts["documents"] == len(found) and counts["empty_vectors"] == sum(not vector for vector in found.values())
    assert counts["unique_terms"] == len({term for vector in found.values() for term in vector})
    assert counts["postings"] == sum(map(len, found.values()))
    assert counts["impacts"] == sum(sum(vector.values()) for vector in found.values())


@quick
@given(st.dictionaries(WORD, VECTOR, min_size=1, max_size=5), st.text(max_size=5), JSON)
def test_what_is_read_of_any_vector_would_be_indexed_as_it_is(tmp_path, found, term, impact):
    folder = new(tmp_path)
    name = next(iter(found))
    changed = {**found, name: {**found[name], term: impact}}
    (folder / "v.jsonl").write_text(
        "".join(json.dumps({"id": key, "vector": one}) + "\n" for key, one in changed.items())
    )
    try:
        read = list(vectors.read_distinct(folder))
    except DataError as error:
        assert "v.jsonl line 1" in str(error)
        return
    for _, _, vector in read:
        words = Counter(
            word for word, times in vector.items() for word in [word] * min(times, 3) for word in word.split()
        )
        assert set(words) == set(vector) and all(type(times) is int and 0 < times <= MOST for times in vector.values())


# Collections and corpora


@st.composite
def judged_collections(draw):
    documents = draw(st.dictionaries(WORD, st.tuples(TEXT, TEXT), min_size=1, max_size=6))
    queries = draw(
        st.dictionaries(WORD, TEXT.filter(lambda text: collections.topic_text(text)), min_size=1, max_size=4)
    )
    pairs = st.tuples(st.sampled_from(sorted(queries)), st.sampled_from(sorted(documents)))
    judged = draw(st.dictionaries(pairs, st.integers(-2, 3), min_size=1, max_size=8))
    return documents, queries, judged


def write_beir(folder: Path, documents, queries, judged, order=lambda found: found) -> None:
    (folder / "qrels").mkdir()
    lines = [
        json.dumps({"_id": name, "title": title, "text": text}) + "\n" for name, (title, text) in documents.items()
    ]
    (folder / "corpus.jsonl").write_text("".join(order(lines)), encoding="utf-8", newline="\n")
    lines = [json.dumps({"_id": name, "text": text}, ensure_ascii=False) + "\n" for name, text in queries.items()]
    (folder / "queries.jsonl").write_text("".join(order(lines)), encoding="utf-8", newline="\n")
    lines = [f"{query}\t{document}\t{grade}\n" for (query, document), grade in judged.items()]
    (folder / "qrels" / "test.tsv").write_text("".join(order(lines)), encoding="utf-8", newline="\n")


@quick
@given(judged_collections())
def test_a_collection_is_the_same_after_it_was_written(tmp_path, found):
    folder = new(tmp_path)
    write_beir(folder, *found)
    before = collections.open_collection(str(folder))
    counts = collections.write_pyserini_form(before, folder / "out")
    after = collections.open_collection(str(folder / "out"))
    documents, queries, judged = found
    assert {one.id: (one.title, one.text) for one in after.documents()} == documents
    assert [*after.documents()] == [*before.documents()]
    assert {(one.query, one.document): one.grade for one in after.judgements()} == judged
    asked = {query for query, _ in judged}
    assert {one.id: one.text for one in after.queries()} == {n: collections.topic_text(queries[n]) for n in asked}
    again = collections.write_pyserini_form(after, folder / "again")
    assert again == counts and counts.documents == len(documents) and counts.judgements == len(judged)


@quick
@given(judged_collections(), st.randoms())
def test_measures_of_a_collection_do_not_depend_on_the_order_of_its_lines(tmp_path, found, chance):
    documents, queries, judged = found
    names = ["nDCG@10", "RR@10", "R@10"]
    run = {
        query: [Hit(name, rank, float(len(name) % 2)) for rank, name in enumerate(documents, 1)] for query in queries
    }
    values = []
    for order in (lambda lines: lines, lambda lines: chance.sample(lines, len(lines))):
        folder = new(tmp_path)
        write_beir(folder, *found, order)
        collections.write_pyserini_form(collections.open_collection(str(folder)), folder / "out")
        qrels = measures.read_qrels(folder / "out" / "qrels.txt")
        values.append(measures.evaluate(names, qrels, run))
    assert values[0] == pytest.approx(values[1])


@quick
@given(st.dictionaries(WORD, st.tuples(TEXT, TEXT), min_size=1, max_size=6), st.integers(1, 3))
def test_a_corpus_is_the_same_in_one_file_or_many_packed_or_not(tmp_path, documents, parts):
    import gzip

    folder = new(tmp_path)
    lines = [
        json.dumps({"_id": name, "title": title, "text": text}) + "\n" for name, (title, text) in documents.items()
    ]
    (folder / "one.jsonl").write_text("".join(lines))
    (folder / "many").mkdir()
    size = -(-len(lines) // parts)
    for number in range(parts):
        data = "".join(lines[number * size : (number + 1) * size]).encode()
        (folder / "many" / f"{number}.jsonl.gz").write_bytes(gzip.compress(data))
    one, many = (corpora.open_corpus(str(folder / name)) for name in ("one.jsonl", "many"))
    assert [text for _, text in one.texts()] == [text for _, text in many.texts()]
    assert corpora.scan(one) == corpora.scan(many)
    assert [text.id for _, text in one.texts()] == list(documents)
    for (_, text), (title, body) in zip(one.texts(), documents.values(), strict=True):
        assert text.text == " ".join(filter(None, (title.strip(), body.strip())))


@quick
@given(st.lists(WORD, max_size=12))
def test_ids_that_come_twice_are_found(names):
    ids = corpora.Ids()
    for name in names:
        ids.add(name)
    if len(set(names)) == len(names):
        ids.check(lambda: (("w", name) for name in names))
    else:
        with pytest.raises(DataError, match="has been used before"):
            ids.check(lambda: (("w", name) for name in names))


SENTENCE = st.lists(st.sampled_from("one two three four five six".split()), min_size=1, max_size=7).map(" ".join)


@quick
@given(st.lists(st.tuples(st.sampled_from("abcdef"), SENTENCE, SENTENCE), max_size=6), st.randoms())
def test_docstrings_are_distinct_long_enough_and_in_any_order_the_same(tmp_path, found, chance):
    sources = {
        f"{name}{number}.py": f'"""{first.title()}.\n\n{rest}\n"""\n'
        for number, (name, first, rest) in enumerate(found)
    }
    read = []
    for _ in range(2):
        folder = new(tmp_path)
        for name in chance.sample(sorted(sources), len(sources)):
            (folder / name).write_text(sources[name])
        read.append(docstrings._distinct(docstrings._passages(folder, folder.rglob("*.py"))))
    assert read[0] == read[1]
    assert len({one.text for one in read[0]}) == len(read[0]) == len({one.id for one in read[0]})
    assert all(len(one.query.split()) >= 4 and len(one.text.split()) >= 5 for one in read[0])
    wanted = {rest for _, first, rest in found if len(first.split()) >= 4 and len(rest.split()) >= 5}
    assert {one.text for one in read[0]} == wanted


# CIFF


@quick
@given(st.lists(VECTOR, min_size=1, max_size=8))
def test_an_inverted_index_holds_the_postings_of_the_vectors(tmp_path, found):
    folder = new(tmp_path)
    (folder / "in").mkdir()
    lines = [json.dumps({"id": f"d{number}", "vector": vector}) + "\n" for number, vector in enumerate(found)]
    (folder / "in" / "v.jsonl").write_text("".join(lines))
    export.export(folder / "in", folder / "out", "ciff", bar=False)
    header, *parts = ciff.read(folder / "out" / "documents.ciff")
    lists = [part for part in parts if isinstance(part, ciff.PostingsList)]
    records = [part for part in parts if isinstance(part, ciff.DocRecord)]
    wanted: dict[str, list[tuple[int, int]]] = {}
    for number, vector in enumerate(found):
        for term, impact in vector.items():
            wanted.setdefault(term, []).append((number, impact))
    assert [one.term for one in lists] == sorted(wanted, key=str.encode)
    for one in lists:
        assert [*zip(one.documents.tolist(), one.impacts.tolist(), strict=True)] == wanted[one.term]
    assert [(one.number, one.id, one.length) for one in records] == [
        (number, f"d{number}", sum(vector.values())) for number, vector in enumerate(found)
    ]
    assert header.total_terms == sum(sum(vector.values()) for vector in found)


@quick
@given(st.lists(st.tuples(st.integers(1, 2**20), st.integers(1, 2**31 - 1)), max_size=10))
def test_postings_of_any_size_are_those_of_plain_varints(pairs):
    gaps, impacts = (np.array(part, dtype=np.int64) for part in (zip(*pairs, strict=True) if pairs else ((), ())))
    plain = b""
    for gap, impact in pairs:
        inner = ciff._number_field(1, gap) + ciff._number_field(2, impact)
        plain += ciff._key(4, 2) + ciff._varint(len(inner)) + inner
    assert ciff.postings_bytes(gaps, impacts) == plain


@quick
@given(st.lists(VECTOR, min_size=1, max_size=5), st.sampled_from([(5.0, 256), (1.0, 100), (3.217, 255)]))
def test_weights_written_for_other_engines_are_the_impacts_again(tmp_path, found, scale):
    folder = new(tmp_path)
    (folder / "in").mkdir()
    lines = [json.dumps({"id": f"d{number}", "vector": vector}) + "\n" for number, vector in enumerate(found)]
    (folder / "in" / "v.jsonl").write_text("".join(lines))
    export.export(folder / "in", folder / "out", "jsonl-float", scale=scale, bar=False)
    for line, vector in zip((folder / "out" / "documents.jsonl").read_text().splitlines(), found, strict=True):
        weights = json.loads(line)["vector"]
        assert list(weights) == list(vector)
        assert quantize.quantize(np.array([*weights.values()]), *scale).tolist() == [*vector.values()]


# Runs and measures


NAMES = [f"d{number}" for number in range(12)]
GRADES = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 3), min_size=1, max_size=8)
SCORED = st.dictionaries(
    st.sampled_from(NAMES), st.one_of(st.integers(0, 4).map(float), st.floats(-1e4, 1e4)), max_size=12
)
CASE = st.dictionaries(st.sampled_from(["q1", "q2", "q3"]), st.tuples(GRADES, SCORED), min_size=1)


def case(found):
    qrels = {query: grades for query, (grades, _) in found.items()}
    run = {
        query: [Hit(name, rank, score) for rank, (name, score) in enumerate(scored.items(), 1)]
        for query, (_, scored) in found.items() if scored
    }  # fmt: skip
    return qrels, run


@quick
@given(CASE)
def test_measures_are_trec_evals_whatever_ties(found):
    qrels, run = case(found)
    scores = {query: {hit.document: hit.score for hit in hits} for query, hits in run.items()}
    ours = {"nDCG@10": "ndcg_cut_10", "R@5": "recall_5", "AP": "map", "P@3": "P_3", "RR": "recip_rank", "nDCG": "ndcg"}
    wanted = {"ndcg_cut.10", "recall.5", "map", "P.3", "recip_rank", "ndcg"}
    theirs = pytrec_eval.RelevanceEvaluator(qrels, wanted).evaluate(scores)
    expected = {name: sum(one[key] for one in theirs.values()) / len(qrels) for name, key in ours.items()}
    values = measures.evaluate(ours, qrels, run)
    assert values == pytest.approx(expected, abs=1e-9)
    assert all(0 <= value <= 1 + 1e-12 for value in values.values())
    each = measures.per_query(ours, qrels, run)
    assert {name: sum(one.values()) / len(qrels) for name, one in each.items()} == pytest.approx(values, abs=1e-9)


@quick
@given(CASE, st.randoms())
def test_a_run_reads_back_and_its_order_does_not_matter(tmp_path, found, chance):
    qrels, run = case(found)
    path = new(tmp_path) / "run.txt"
    lines = [f"{query} Q0 {hit.document} {hit.rank} {hit.score!r} t\n" for query, hits in run.items() for hit in hits]
    path.write_text("".join(lines))
    assert measures.read_run(path) == run
    path.write_text("".join(chance.sample(lines, len(lines))))
    names = ["nDCG@10", "RR@10", "R@10"]
    again = measures.read_run(path)
    assert measures.evaluate(names, qrels, again) == pytest.approx(measures.evaluate(names, qrels, run))
    assert measures.by_rank(names, qrels, again) == pytest.approx(measures.by_rank(names, qrels, run))
    for hits in run.values():
        order = measures.ranked(hits)
        scores = {hit.document: float(np.float32(hit.score)) for hit in hits}
        assert order == sorted(sorted(scores, reverse=True), key=lambda name: -scores[name])
    path.write_text("".join([*lines, lines[0]] if lines else []))
    if lines:
        with pytest.raises(DataError, match="second time"):
            measures.read_run(path)


@quick
@given(CASE)
def test_one_more_relevant_document_in_front_makes_nothing_worse(found):
    qrels, run = case(found)
    query = next(iter(qrels))
    hits = [hit for hit in run.get(query, []) if hit.document != "new"]
    qrels[query]["new"] = 3
    better = {**run, query: [Hit("new", 0, 1e6), *hits]}
    names = ["nDCG@10", "RR@10", "R@10", "AP"]
    before, after = measures.evaluate(names, qrels, {**run, query: hits}), measures.evaluate(names, qrels, better)
    assert all(after[name] >= before[name] - 1e-12 for name in names)
