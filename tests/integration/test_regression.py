"""The regression through Pyserini's real commands, on a part of a real collection, against exact dot products."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pyserini_rescale import yaml_files
from pyserini_rescale.cli import main
from pyserini_rescale.regression import measures

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.jvm]
QUERIES, OTHERS = 12, 200


def resource(variable: str, folder: str, name: str) -> Path:
    path = Path(os.environ.get(variable) or ROOT.parent / "shared" / folder) / name
    if not path.is_dir():
        pytest.skip(f"needs {name}/: set {variable} to the folder that contains it")
    return path


@pytest.fixture(scope="module")
def model() -> Path:
    return resource("PYSERINI_RESCALE_MODELS", "models", "splade-tiny")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """The first queries of SciFact test, their judged documents and others; one document is empty."""
    source = resource("PYSERINI_RESCALE_DATA", "data", "scifact")
    folder = tmp_path_factory.mktemp("cacm-beir") / "part"  # words that make Pyserini read .tsv topics another way
    (folder / "qrels").mkdir(parents=True)
    qrels = (source / "qrels" / "test.tsv").read_text().splitlines()[1:]
    queries = list(dict.fromkeys(line.split("\t")[0] for line in qrels))[:QUERIES]
    qrels = [line for line in qrels if line.split("\t")[0] in queries]
    judged = {line.split("\t")[1] for line in qrels}
    corpus = [json.loads(line) for line in open(source / "corpus.jsonl", encoding="utf-8")]
    kept = [found for found in corpus if found["_id"] in judged] + corpus[:OTHERS]
    kept = list({found["_id"]: found for found in kept}.values()) + [{"_id": "empty", "title": "", "text": ""}]
    texts = [json.loads(line) for line in open(source / "queries.jsonl", encoding="utf-8")]
    texts = [found for found in texts if found["_id"] in queries]
    texts[0]["_id"] = f"0{queries[0]}"  # as a number it would be another query
    qrels = [f"0{line}" if line.split("\t")[0] == queries[0] else line for line in qrels]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(found) + "\n" for found in kept))
    (folder / "queries.jsonl").write_text("".join(json.dumps(found) + "\n" for found in texts))
    (folder / "qrels" / "test.tsv").write_text("\n".join(qrels) + "\n")
    return folder


def write_specs(root: Path, data: Path, model: Path, figures: dict[str, float]) -> None:
    names = ["nDCG@10", "RR@10", "R@100"]
    lines = (data / "qrels" / "test.tsv").read_text().splitlines()
    collection = {
        "name": "part", "description": "part", "folder": data.name,
        "documents": len((data / "corpus.jsonl").read_text().splitlines()),
        "queries": QUERIES, "judgements": len(lines), "measures": names, "hits": 100,
    }  # fmt: skip
    expected = {
        "measures": {name: {"measured": figures[name], "tolerance": 1e-6} for name in names if name in figures},
        "counts": {
            "unretrieved_queries": {"measured": 0, "tolerance": 0},
            "empty_vectors": {"measured": 0, "tolerance": 0},
        },
    }
    tiny = {
        "name": "tiny",
        "description": "tiny",
        "folder": model.name,
        "max_length": 256,
        "expected": {"part": expected},
    }
    for kind, value in (("collections", collection), ("models", tiny)):
        (root / kind).mkdir(parents=True, exist_ok=True)
        (root / kind / f"{value['name']}.yaml").write_text(yaml_files.to_yaml(value))


QUERY_VECTORS = """\
import json, sys
from pyserini.encode import QueryEncoder
from pyserini_rescale.encode.encoder import SpladeRescaledQueryEncoder
encoder = SpladeRescaledQueryEncoder(sys.argv[1])
topics = json.load(open(sys.argv[2]))
json.dump({name: encoder.encode(entry["title"]) for name, entry in topics.items()}, open(sys.argv[3], "w"))
"""


def dot_product_run(work: Path, model: Path, scratch: Path) -> measures.Run:
    """Score all documents for all queries from the encoded vectors alone, no index."""
    topics, out = work / "collection" / "topics.json", scratch / "queries.json"
    subprocess.run([sys.executable, "-c", QUERY_VECTORS, model, topics, out], check=True)
    documents = [
        json.loads(line) for line in (work / "embeddings" / "embeddings.jsonl").read_text().split("\n") if line
    ]
    run = {}
    for query, vector in json.loads(out.read_text()).items():
        hits = []
        for document in documents:
            score = sum(weight * document["vector"].get(term, 0) for term, weight in vector.items())
            if score:
                hits.append(measures.Hit(document["id"], 0, float(score)))
        run[query] = hits
    return run


def test_a_part_of_scifact_equals_exact_dot_products(data, model, tmp_path, capsys):
    arguments = [
        "part.tiny",
        "--specs",
        str(tmp_path / "specs"),
        "--data",
        str(data.parent),
        "--models",
        str(model.parent),
    ]
    arguments += ["--work", str(tmp_path / "cacm beir msmarco-passage-dev-subset"), "--threads", "2"]
    work = Path(arguments[-3])
    write_specs(tmp_path / "specs", data, model, {})
    assert main(["regress", "run", *arguments, "--stages", "collection,encode"]) == 0
    exact = dot_product_run(work, model, tmp_path)
    qrels = measures.read_qrels(work / "collection" / "qrels.txt")
    assert any(name.startswith("0") for name in qrels)
    figures = measures.evaluate(["nDCG@10", "RR@10", "R@100"], qrels, exact)
    assert figures["nDCG@10"] > 0.5
    write_specs(tmp_path / "specs", data, model, figures)
    capsys.readouterr()
    status = main(["regress", "run", *arguments, "--json"])
    result = json.loads(capsys.readouterr().out)
    assert (status, result["problems"]) == (0, [])
    run = measures.read_run(work / "run.txt")
    assert set(run) == set(exact)
    for query, hits in run.items():
        scores = {hit.document: hit.score for hit in exact[query]}
        assert [hit.score for hit in hits] == sorted(scores.values(), reverse=True)[: len(hits)]
        assert all(scores[hit.document] == hit.score for hit in hits)

    # The commands as printed, typed by hand: the same run.
    records = work / "records"
    search = json.loads((records / "search.json").read_text())["command"]
    typed = search.replace("run.txt", "typed.txt")
    assert shutil.which("bash")
    python = f'python() {{ "{sys.executable}" "$@"; }}; {typed}'
    subprocess.run(["bash", "-c", python], check=True, capture_output=True)
    assert (work / "typed.txt").read_bytes() == (work / "run.txt").read_bytes()

    # A document taken out of the vectors after indexing: verify counts again and says so.
    vectors = work / "embeddings" / "embeddings.jsonl"
    lines = vectors.read_text().splitlines(keepends=True)
    vectors.write_text("".join(lines[1:]))
    assert main(["regress", "verify", *arguments]) == 1
    out = capsys.readouterr().out
    assert f"the index has {len(lines)} documents, the vectors have {len(lines) - 1}" in out


def test_measures_agree_with_trec_eval(tmp_path):
    """A run with ties, a missing query, graded, unjudged and negative documents."""
    (tmp_path / "qrels").write_text("1 0 a 1\n2 0 b 3\n2 0 c 1\n2 0 d 0\n2 0 e -1\n3 0 a 1\n4 0 a 0\n")
    hits = {"1": "a 5,b 5,c 5", "2": "c 9,x 8,b 7,d 7,e 7", "4": "a 1", "9": "a 1"}
    lines = []
    for query, found in hits.items():
        for rank, hit in enumerate(found.split(","), 1):
            document, score = hit.split()
            lines.append(f"{query} Q0 {document} {rank} {score}.000000 t\n")
    (tmp_path / "run").write_text("".join(lines))
    command = [sys.executable, "-m", "pyserini_rescale", "run", "pyserini.eval.trec_eval", "-c"]
    wanted = {
        "ndcg_cut_2": "nDCG@2",
        "ndcg_cut_10": "nDCG@10",
        "recip_rank": "RR@10",
        "recall_2": "R@2",
        "recall_1000": "R@1000",
    }
    options = ["-m", "ndcg_cut.2,10", "-m", "recip_rank", "-m", "recall.2,1000"]
    done = subprocess.run(
        [*command, *options, tmp_path / "qrels", tmp_path / "run"], capture_output=True, text=True, check=True
    )
    reference = {}
    for line in done.stdout.splitlines():
        columns = line.split()
        if len(columns) == 3 and columns[0] in wanted:
            reference[wanted[columns[0]]] = float(columns[2])
    assert set(reference) == set(wanted.values())
    qrels, run = measures.read_qrels(tmp_path / "qrels"), measures.read_run(tmp_path / "run")
    assert measures.evaluate(wanted.values(), qrels, run) == pytest.approx(reference, abs=5.1e-5)
