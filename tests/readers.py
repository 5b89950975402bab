"""Every reader of files that the package has, for test_readers.py: a new one is a line in ``READERS``."""

import contextlib
import dataclasses
import gzip
import hashlib
import io
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import save

from pyserini_rescale import collections, corpora, docstrings, yaml_files
from pyserini_rescale.cli import main
from pyserini_rescale.encode import ciff, folder, jsonl, marker, topics, vectors
from pyserini_rescale.encode.quantize import FIXED
from pyserini_rescale.errors import DataError
from pyserini_rescale.model import head_stats, policy, term_offsets, texts, weights_file
from pyserini_rescale.quickstart import pipeline
from pyserini_rescale.regression import (
    catalogue,
    empty_run,
    measures,
    query_stats,
)
from pyserini_rescale.train import checkpoints, config, data, deepspeed_file, log, mine, plot, run, sources
from pyserini_rescale.train import folder as train_folder
from tests.malformed import Reader


def lines(*found: Any) -> str:
    return "".join(json.dumps(one) + "\n" for one in found)


def drained(stream: Callable[[Path], Iterable[Any]]) -> Callable[[Path], list[Any]]:
    return lambda root: list(stream(root))


def command(*argv: str) -> None:
    """Run the command line; an error that it reports as one line is raised, anything else that is amiss fails."""
    said, printed = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(printed):
        status = main(list(argv))
    errors = [line for line in said.getvalue().splitlines() if line.startswith("error: ")]
    problems = [line for line in printed.getvalue().splitlines() if line.startswith("problem: ")]
    assert "Traceback" not in said.getvalue() + printed.getvalue()
    assert (status in (2, 3)) == (len(errors) == 1), (status, said.getvalue())
    if errors:
        raise DataError(errors[0])
    if problems:
        assert status == 1
        raise DataError("; ".join(problems))


# Collections


DOCUMENTS = lines(
    {"_id": "d1", "title": "Wing", "text": "lift and drag"},
    {"_id": 2, "text": "the é of a wing"},
    {"_id": "d3", "text": ""},
)
QUERIES = lines({"_id": "q1", "text": "lift"}, {"_id": "q2", "text": "drag of wings"})
BEIR = {
    "corpus.jsonl": DOCUMENTS, "queries.jsonl": QUERIES, "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\t2\t0\n",
}  # fmt: skip
WRITTEN = {
    "corpus/corpus.jsonl": lines({"id": "d1", "title": "", "text": "lift"}, {"id": "d2", "title": "t", "text": "drag"}),
    "topics.json": json.dumps({"q1": {"title": "lift"}, "q2": {"title": "drag"}}),
    "qrels.txt": "q1 0 d1 1\nq2 0 d2 0\n",
}
VECTORS = lines(
    {"id": "d1", "vector": {"wing": 3, "##ing": 128}}, {"id": "d2", "vector": {}}, {"id": "d3", "vector": {"é": 1}}
)
TSV = "d1\tlift and drag\nd2\tthe é of a wing\nd3\t\n"


def stream(part: str) -> Callable[[Path], list[Any]]:
    return lambda root: list(getattr(collections.open_collection(str(root)), part)())


def packed(text: str) -> bytes:
    return gzip.compress(text.encode(), mtime=0)


def written_form(root: Path) -> None:
    collections.write_pyserini_form(collections.open_collection(str(root)), root / "out")


def texts_of(name: str) -> Callable[[Path], list[Any]]:
    def read(root: Path) -> list[Any]:
        corpus = corpora.open_corpus(str(root / name))
        corpora.scan(corpus)
        return list(corpus.texts())

    return read


def pyserini_corpus(root: Path) -> list[Any]:
    class Base:
        def __init__(self) -> None:
            self.fields, self.docid_field = ["text"], None
            self.size = len(self._load(str(root / "c.jsonl"))["id"])
            self.shard_id, self.shard_num, self.batch_size = 0, 1, 2

        def _parse_fields_from_info(self, info: dict[str, Any], strict: bool) -> list[str]:
            return [info[name] for name in self.fields] if "text" in info else info["contents"].split("\n")

    with contextlib.redirect_stderr(io.StringIO()):
        return [name for batch in jsonl.collection_iterator(Base)() for name in batch["id"]]


# Encoded corpora


SCALE = dataclasses.asdict(FIXED["pyserini"])
SETTINGS = {
    "asked": {
        "model": "m", "quantizer": "pyserini", "fields": [], "id_field": None, "documents": 3, "corpus": "c", "unit": 3, "gzip": False,
    },
    "model_name": "m", "quantizer": SCALE, "calibration": None,
    "corpus": {"source": "corpus.jsonl", "documents": 3, "empty": 1, "sha256": "c", "files": [["corpus.jsonl", 1, 1]]},
}  # fmt: skip
RECORD = {
    "unit": 0, "file": "part-000000.jsonl", "documents": 3, "empty_vectors": 1, "postings": 3, "impacts": 132, "clamped": 0,
    "left_out": 0, "bytes": len(VECTORS.encode()), "least_terms": 0, "most_terms": 2, "largest_impact": 128,
    "first_empty_ids": ["d2"], "sha256": hashlib.sha256(VECTORS.encode()).hexdigest(), "settings": folder.settings_digest(SETTINGS), "made_with": {"torch": "2"},
}  # fmt: skip
ENCODED = {
    "settings.json": json.dumps(SETTINGS),
    "units/000000.json": json.dumps(RECORD),
    "vectors/part-000000.jsonl": VECTORS,
    "manifest.json": json.dumps(folder.merged(SETTINGS, {0: RECORD})),
}


def units(root: Path) -> None:
    settings = folder.read_settings(root / "settings.json")
    records = folder.Folder(root).finished(settings)
    if records:
        folder.merged(settings, records)


def use_manifest(root: Path) -> None:
    """As encode topics --like takes it."""
    manifest = topics._manifest(topics.Options("t", root / "o.json", like=root))
    topics._scale(topics.Options("t", root / "o.json", like=root), manifest, None)
    folder.check_parts(root / "vectors", manifest)


def export_checked(root: Path) -> None:
    command("export", str(root), "--format", "ciff", "--output", str(root.with_name(root.name + "-out")))


def use_marker(root: Path) -> None:
    marker.check_scale(root, (5.0, 256), "m")


CIFF = io.BytesIO()
ciff.write_header(CIFF, ciff.Header(1, 2, 2, 2, 2, 136, 68.0, "d"))
ciff.write_postings_list(CIFF, ciff.PostingsList("a", 2, 131, np.array([0, 1]), np.array([3, 128])))
ciff.write_postings_list(CIFF, ciff.PostingsList("é", 1, 5, np.array([1]), np.array([5])))
ciff.write_doc_record(CIFF, ciff.DocRecord(0, "d1", 3))
ciff.write_doc_record(CIFF, ciff.DocRecord(1, "d2", 133))


# Models


OFFSETS = np.arange(4, dtype=np.float32)
MODEL_CONFIG = {
    "model_type": "bert", "vocab_size": 4, "splade_rescale": {
        "k": 16.0, "scope": "shared", "tied_before": True, "offset_rule": "per-term", "bias_offset": 1.5, "target_active": 0.015,
        "term_offsets": term_offsets.checksum(OFFSETS), "query_length": 32, "weight_range": 5.0, "quant_range": 256,
    },
}  # fmt: skip
WEIGHTS = save({
    "bert.embeddings.word_embeddings.weight": np.ones((4, 3), np.float32),
    "cls.predictions.bias": np.zeros(4, np.float32),
})  # fmt: skip
CHECKPOINT = {"config.json": json.dumps(MODEL_CONFIG), "model.safetensors": WEIGHTS}
SHARDED = {
    "config.json": json.dumps(MODEL_CONFIG), "one.safetensors": WEIGHTS,
    "model.safetensors.index.json": json.dumps({"weight_map": {"cls.predictions.bias": "one.safetensors"}}),
}  # fmt: skip


def tensors(root: Path) -> None:
    for tensor in (weights_file.stored_tensors(root) or {}).values():
        list(tensor.blocks())


def offsets(root: Path) -> None:
    term_offsets.read(str(root), policy.read_policy(str(root)))


# Training


TRIPLES = [{"query": f"q{n}", "positive": f"p é {n}", "negative": f"n{n}"} for n in range(3)]
ROWS = [list(row.values()) for row in TRIPLES]


def triples(name: str) -> Callable[[Path], list[Any]]:
    def read(root: Path) -> list[Any]:
        found = data.load_triples(config.DataConfig(files=[str(root / name)]), lambda text: None)
        sources.lines_of([str(root / name)])
        return list(found)

    return read


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({key: [row[key] for row in TRIPLES] for key in TRIPLES[0]}), sink)
    return sink.getvalue()


TRAINING = yaml_files.to_yaml({
    "extends": "smoke.yaml", "name": "x", "backbone": {"name": "m"}, "optimizer": {"learning_rate": 0.001},
    "data": {"files": ["t.jsonl"], "columns": {"query": "q"}}, "variants": [{"a": {"epochs": 1.0}}, {"b": {"seed": 2}}],
})  # fmt: skip
FACTS = json.dumps({"row_norm": {"mean": 1.0}, "policy": {"k": 1.0, "offset_rule": None}, "made_for": {"data": "d"}})
LOG = lines(
    {"step": 1, "epoch": 0.5, "contrastive": 2.0, "document_active": 3.0},
    {"step": 2, "epoch": 1.0, "contrastive": 1.0, "é": "é"},
)


def resume_log(root: Path) -> list[Any]:
    log.JsonlLog(root / "log.jsonl", resume_step=10**6)
    return log.read_log(root / "log.jsonl")


def draw(root: Path) -> None:
    runs = plot.load_runs([root])
    curves = [plot.curve(one, "contrastive") for one in runs]
    for one in runs:
        plot.summary(one, "contrastive")
    if any(one.values for one in curves):
        plot.draw(curves, "contrastive")


def check_run_folder(root: Path) -> None:
    train_folder.check_folder(RESOLVED, root, resume=True)


RESOLVED = config.resolve("smoke")
STORED = yaml_files.to_yaml(RESOLVED.model_dump(mode="json"))


# Regressions


SPECS = {
    "collections/toys.yaml": yaml_files.to_yaml({
        "name": "toys", "description": "toys", "folder": "toys", "documents": 2, "queries": 2, "judgements": 2,
        "measures": ["nDCG@10", "RR@10"], "training": {"split": "train"},
    }),
    "models/tiny.yaml": yaml_files.to_yaml({
        "name": "tiny", "description": "t", "folder": "tiny", "wheel": {"package": "p", "version": "1", "folder": "f", "files": ["a"]},
        "expected": {"toys": {
            "measures": {name: {"measured": 0.5, "tolerance": 1.0} for name in ("nDCG@10", "RR@10")},
            "counts": {"postings": {"measured": 1, "tolerance": 0}}, "sparsity": {"flops": {"measured": 0.5, "tolerance": 0.1}},
            "measured_with": {"torch": "2"},
        }},
    }),
    "models/family.yaml": yaml_files.to_yaml({
        "shared": {"description": "f", "expected": {"toys": {}}},
        "models": {"one": {"training": {"config": "smoke", "triples": "toys", "set": {"seed": 1}}}, "two": {"folder": "two"}},
    }),
    "suites.yaml": yaml_files.to_yaml({"all": {"description": "a", "regressions": ["toys.*"]}}),
}  # fmt: skip
RUN = "q1 Q0 d1 1 3.000000 t\nq1 Q0 d2 2 1.500000 t\nq2 Q0 d2 1 2.000000 t\n"
STATISTICS = {
    "vectors": {"documents": 2, "empty_vectors": 0}, "index": {"documents": 2, "unique_terms": 1, "postings": 1, "impacts": 1},
    "problems": [], "scale": None,
}  # fmt: skip
STATED = {
    "queries": 2, "empty_queries": 0, "most_terms_in_a_query": 2, "query_terms": 1.5, "document_terms": 1.0, "flops": 0.5,
    "problems": [],
}  # fmt: skip
WORK = {
    "work/collection/counts.json": json.dumps({
        "documents": 2, "judged_queries": 2, "judgements": 2, "queries_without_text": [], "judgements_outside": 0, "sha256": "s",
    }),
    "work/collection/corpus/corpus.jsonl": WRITTEN["corpus/corpus.jsonl"],
    "work/collection/qrels.txt": WRITTEN["qrels.txt"],
    "work/collection/topics.json": WRITTEN["topics.json"],
    "work/statistics.json": json.dumps(STATISTICS),
    "work/queries.json": json.dumps(STATED),
    "work/run.txt": RUN,
    "data/toys/qrels/test.tsv": "q1\td1\t1\n", "models/tiny/config.json": "{}",
    **{f"specs/{name}": content for name, content in SPECS.items()},
}  # fmt: skip
RECORDED = {
    **WORK,
    "work/records/search.json": json.dumps({
        "stage": "search", "command": "python", "argv": ["python"], "fingerprint": "f", "started": "2020", "seconds": 1.0,
        "inputs": {"{work}/collection/topics.json": {"sha256": "s", "files": {"a": [1, 2, "s"]}}}, "versions": {"torch": "2"},
        "output": {"sha256": "s", "files": {".": [1, 2, "s"]}}, "device": None,
    }),
}  # fmt: skip
TRAINED = {
    **WORK,
    "work/head.json": json.dumps({"row_norm_mean": 1.0, "row_norm_max": 2}),
    "work/training/run.json": json.dumps({"last": {"contrastive": 1.0, "step": 3, "x": None}}),
    "specs/models/tiny.yaml": yaml_files.to_yaml({
        "name": "tiny", "description": "t", "training": {"config": "smoke", "triples": "own"},
        "head": {"row_norm_mean": {"measured": 1.0, "tolerance": 0.1}}, "expected": {"toys": {
            "measures": {name: {"measured": 0.5, "tolerance": 1.0} for name in ("nDCG@10", "RR@10")},
            "training": {"contrastive": {"measured": 1.0, "tolerance": 0.1}},
        }},
    }),
}  # fmt: skip
RESULT = {
    "name": "toys.tiny", "verdict": "OK", "exit_code": 0, "problems": [], "notes": [], "by_rank": {},
    "rows": [{"kind": "measure", "name": "nDCG@10", "published": None, "expected": 1.0, "tolerance": 0.001, "at_most": None,
              "found": 1.0, "verdict": "OK", "difference": 0.0}],
    "found": {"measures": {"nDCG@10": 1.0, "RR@10": 1.0}, "counts": {}, "sparsity": {"flops": 0.5}, "training": {}, "head": {}},
    "statistics": STATISTICS, "stages": [],
}  # fmt: skip


def regress(action: str, *more: str, work: str = "work") -> Callable[[Path], None]:
    def read(root: Path) -> None:
        places = ["--data", str(root / "data"), "--models", str(root / "models"), "--work", str(root / work)]
        command("regress", action, "toys.tiny", "--specs", str(root / "specs"), *places, *more)

    return read


def regress_records(root: Path) -> None:
    """A record that is of another command is a problem, one that cannot be used is none at all."""
    with contextlib.suppress(DataError):
        regress("verify")(root)


def compare(root: Path) -> None:
    command("regress", "compare", str(root / "a.txt"), str(root / "b.txt"), "--qrels", str(root / "qrels.txt"))


def statistics(root: Path) -> None:
    query_stats.query_stats(root / "v", root / "topics.json", root / "run.txt", lambda text: {text: 1}, 10)


QUERY_STATS = {"v/a.jsonl": VECTORS, "topics.json": WRITTEN["topics.json"], "run.txt": RUN}
FOLDERS = {"work/head.json": TRAINED, "work/training/run.json": TRAINED, "work/records/search.json": RECORDED}
QUICKSTART = {
    "training/run.json": json.dumps({
        "first": {"contrastive": 1.0, "query_active": 2, "document_active": 3},
        "last": {"contrastive": 1.0, "query_active": 2, "document_active": 3},
        "start": {"row_norm": {"mean": 1.0}, "policy": {"k": 1.0, "offset_rule": None, "bias_offset": 0.0}},
    }),
    "run.txt": RUN,
}  # fmt: skip

READERS = [
    Reader("corpus of a BEIR folder", BEIR, stream("documents"), "jsonl"),
    Reader("queries of a BEIR folder", BEIR, stream("queries"), "jsonl", "queries.jsonl"),
    Reader("qrels of a BEIR folder", BEIR, stream("judgements"), "rows", "qrels/test.tsv", header=1),
    Reader("gzipped corpus", {**BEIR, "corpus.jsonl.gz": packed(DOCUMENTS), "corpus.jsonl": b""} | {}, stream("documents"), "gz",
           "corpus.jsonl.gz"),
    Reader("written corpus", WRITTEN, stream("documents"), "jsonl"),
    Reader("written topics", WRITTEN, stream("queries"), "json", "topics.json"),
    Reader("written qrels", WRITTEN, stream("judgements"), "rows", "qrels.txt"),
    Reader("collection written anew", BEIR, written_form, "jsonl", lines=False, beside="files"),
    Reader("corpus in JSON lines", {"c.jsonl": DOCUMENTS}, texts_of("c.jsonl"), "jsonl"),
    Reader("corpus as a table", {"c.tsv": TSV}, texts_of("c.tsv"), "rows"),
    Reader("packed corpus", {"c.jsonl.gz": packed(DOCUMENTS)}, texts_of("c.jsonl.gz"), "gz"),
    Reader("topics in JSON lines", {"q.jsonl": QUERIES}, lambda root: corpora.open_topics(str(root / "q.jsonl")), "jsonl",
           lines=False),
    Reader("topics as a table", {"q.tsv": "q1\tlift\nq2\tdrag\n"}, lambda root: corpora.open_topics(str(root / "q.tsv")), "rows",
           lines=False),
    Reader("topics.json", {"t.json": WRITTEN["topics.json"]}, lambda root: corpora.open_topics(str(root / "t.json")), "json"),
    Reader("corpus for pyserini.encode", {"c.jsonl": DOCUMENTS}, pyserini_corpus, "jsonl"),
    Reader("vectors", {"v.jsonl": VECTORS}, drained(lambda root: vectors.read_distinct(root)), "jsonl"),
    Reader("packed vectors", {"v.jsonl.gz": packed(VECTORS)}, lambda root: vectors.count_vectors(root), "gz"),
    Reader("settings of an encoded corpus", ENCODED, units, "json", "settings.json"),
    Reader("record of a unit", ENCODED, units, "json", "units/000000.json"),
    Reader("manifest", ENCODED, use_manifest, "json", "manifest.json"),
    Reader("marker of an index", {marker.MARKER: json.dumps(marker.marker(SCALE))}, use_marker, "json", beside="files"),
    Reader("marker of topics", {"t.json.manifest.json": json.dumps(marker.marker(SCALE))},
           lambda root: marker.topics_marker(root / "t.json"), "json"),
    Reader("encoded topics", {"t.json": WRITTEN["topics.json"]}, lambda root: topics.read_encoded(root / "t.json"), "json"),
    Reader("CIFF", {"c.ciff": CIFF.getvalue()}, drained(lambda root: ciff.read(root / "c.ciff")), "binary"),
    Reader("policy", CHECKPOINT, lambda root: policy.read_policy(str(root)), "json"),
    Reader("head from files", CHECKPOINT, lambda root: head_stats.read_head_stats(str(root / "model.safetensors")), "json",
           beside="model.safetensors"),
    Reader("safetensors", CHECKPOINT, tensors, "binary", "model.safetensors"),
    Reader("index of safetensors", SHARDED, tensors, "json", "model.safetensors.index.json"),
    Reader("term offsets", {**CHECKPOINT, policy.TERM_OFFSETS_FILE: save({"term_offsets": OFFSETS})}, offsets, "binary",
           policy.TERM_OFFSETS_FILE),
    Reader("texts in JSON lines", {"t.jsonl": lines(*({"query": f"q{n}", "passage": f"p{n}"} for n in range(3)))},
           lambda root: texts.read_texts(str(root / "t.jsonl")), "jsonl"),
    Reader("plain texts", {"t.txt": "one two\nthree four\n"}, lambda root: texts.read_texts(str(root / "t.txt")), "rows"),
    Reader("triples.jsonl", {"t.jsonl": lines(*TRIPLES)}, triples("t.jsonl"), "jsonl"),
    Reader("triples.json", {"t.json": json.dumps(TRIPLES)}, triples("t.json"), "json"),
    Reader("triples.tsv", {"t.tsv": "".join("\t".join(row) + "\n" for row in ROWS)}, triples("t.tsv"), "rows"),
    Reader("triples.csv", {"t.csv": "query,positive,negative\n" + "".join(",".join(row) + "\n" for row in ROWS)},
           triples("t.csv"), "rows", header=1),
    Reader("triples.parquet", {"t.parquet": parquet()}, triples("t.parquet"), "binary"),
    Reader("triples.jsonl.gz", {"t.jsonl.gz": packed(lines(*TRIPLES))}, triples("t.jsonl.gz"), "gz"),
    Reader("training configuration", {"c.yaml": TRAINING}, lambda root: config.resolve(f"{root / 'c.yaml'}:a.b"), "yaml", most=6),
    Reader("configuration that is extended", {"c.yaml": "extends: b.yaml\nvariants: [[a.b]]\n", "b.yaml": TRAINING},
           lambda root: config.resolve(f"{root / 'c.yaml'}:a.b"), "yaml", "b.yaml", most=8),
    Reader("files of a configuration", {"c.yaml": TRAINING}, lambda root: config.config_files(str(root / "c.yaml")), "yaml", most=6),
    Reader("DeepSpeed file", {"d.yaml": "bf16: {enabled: auto}\nzero_optimization: {stage: 1}\n"},
           lambda root: deepspeed_file.read_deepspeed(str(root / "d.yaml")), "yaml", most=6),
    Reader("log", {"log.jsonl": LOG}, resume_log, "jsonl", halves=True),
    Reader("log for a figure", {"log.jsonl": LOG}, draw, "jsonl", lines=False),
    Reader("name for a figure", {"config.json": '{"name": "x"}', "log.jsonl": LOG}, lambda root: plot.load_runs([root]), "json"),
    Reader("named by YAML", {"config.yaml": "name: x\n", "log.jsonl": LOG}, lambda root: plot.load_runs([root]), "yaml", most=6),
    Reader("configuration of a run", {"config.yaml": STORED}, check_run_folder, "yaml", most=3),
    Reader("facts of a run", {"start.json": FACTS}, lambda root: run.read_facts(root / "start.json"), "json"),
    Reader("list of a checkpoint", {"checkpoint-5/files.json": '{"sizes": {"a": 1}}', "checkpoint-5/a": "x",
           "checkpoint-5/trainer_state.json": '{"global_step": 5}'}, lambda root: checkpoints.last(root), "json", quiet=True),
    Reader("step of a checkpoint", {"checkpoint-5/files.json": '{"sizes": {"a": 1}}', "checkpoint-5/a": "x",
           "checkpoint-5/trainer_state.json": '{"global_step": 5}'}, lambda root: checkpoints.last(root), "json",
           "checkpoint-5/trainer_state.json", quiet=True),
    Reader("marker of triples", {"t.jsonl.json": json.dumps({"what": mine.WHAT})},
           lambda root: mine._check(mine.Options("s", root / "t.jsonl")), "json", quiet=True),
    Reader("qrels", {"q.txt": WRITTEN["qrels.txt"]}, lambda root: pairs(measures.read_qrels(root / "q.txt")), "rows"),
    Reader("run", {"r.txt": RUN}, lambda root: pairs(measures.read_run(root / "r.txt")), "rows"),
    Reader("runs compared", {"a.txt": RUN, "b.txt": RUN, "qrels.txt": WRITTEN["qrels.txt"]}, compare, "rows"),
    Reader("topics of the query statistics", QUERY_STATS, statistics, "json", "topics.json"),
    Reader("vectors of the query statistics", QUERY_STATS, statistics, "jsonl", "v/a.jsonl"),
    Reader("run of the query statistics", QUERY_STATS, statistics, "rows", "run.txt", lines=False),
    Reader("statistics of no index", {"s.json": json.dumps(STATISTICS)}, lambda root: empty_run.has_no_terms(root / "s.json"), "json"),
    *(Reader(f"verify: {Path(name).name}", FOLDERS.get(name, WORK),
             regress_records if quiet else regress("verify"), form, name, beside="the collection", says="problem: x", lines=False, quiet=quiet, most=6)
      for name, form, quiet in (
          ("work/collection/counts.json", "json", False), ("work/statistics.json", "json", False),
          ("work/queries.json", "json", False), ("work/head.json", "json", False),
          ("work/training/run.json", "json", False), ("work/run.txt", "rows", False),
          ("work/collection/qrels.txt", "rows", False), ("work/collection/corpus/corpus.jsonl", "jsonl", False),
          ("work/records/search.json", "json", True),
      )),
    Reader("report", {**WORK, "work/result.json": json.dumps(RESULT)}, regress("report"), "json", "work/result.json", says="problem: toys.tiny: x"),
    Reader("collections", SPECS, lambda root: catalogue.load(root), "yaml", "collections/toys.yaml", most=3),
    Reader("models", SPECS, lambda root: catalogue.load(root), "yaml", "models/tiny.yaml", most=3),
    Reader("a family of models", SPECS, lambda root: catalogue.load(root), "yaml", "models/family.yaml", most=3),
    Reader("suites", SPECS, lambda root: catalogue.load(root), "yaml", "suites.yaml", most=3),
    Reader("record of the quickstart's training", QUICKSTART, lambda root: pipeline._row(root, "x", {"q1": {"d1": 1}}), "json"),
    Reader("sources", {"a.py": '"""One two three four. Five six seven eight nine."""\n'},
           lambda root: docstrings._distinct(docstrings._passages(root, root.rglob("*.py"))), "binary", quiet=True),
]  # fmt: skip


def pairs(found: dict[str, Any]) -> list[Any]:
    return [(query, one) for query, inner in found.items() for one in inner]
