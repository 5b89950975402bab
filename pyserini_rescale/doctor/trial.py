"""Three documents, encoded, indexed and searched by Pyserini and Anserini with the backbone that comes with the package.

The report starts this module as a process of its own (``python -m pyserini_rescale.doctor.trial FOLDER``): a JVM that crashes
takes its process with it. The scores that come back are compared with the dot products of the vectors, made here: Anserini
has no part in those.
"""

import json
import os
import re
import runpy
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from pyserini_rescale.doctor.child import answer, run
from pyserini_rescale.doctor.lines import OK, PROBLEM, Line
from pyserini_rescale.lucene import IMPACTS, MODULE, index_arguments
from pyserini_rescale.model.shipped import SHIPPED

DOCUMENTS = {
    "python": "Sort the items of a list in ascending order and return a new list.",
    "weather": "Heavy rain and strong wind are expected along the coast in the evening.",
    "java": "Open a file, read it line by line, and close it again.",
}
QUERY = "return the items of a list in order"
STEPS = ("encode", "index", "search")
_JVM_SAYS = re.compile(r"^(?:Error|Unrecognized|Could not|Invalid|Conflicting|Too small)\b.*", re.MULTILINE)
_SECONDS = 600
_LENGTH = "64"


def lines() -> Iterator[Line]:
    """Do all of it in a temporary folder that does not stay; a line a step."""
    with tempfile.TemporaryDirectory(prefix="doctor-trial-") as folder:
        # Told to be offline: nothing here needs the network, and a network that swallows packets would be waited for.
        # Pyserini hides what a JVM says when it starts, also when it does not.
        environ = {**os.environ, "HF_HUB_OFFLINE": "1", "PYSERINI_VERBOSE_JVM": "1"}
        outcome = run(["-m", "pyserini_rescale.doctor.trial", folder], _SECONDS, environ)
    done = {found["step"]: found for found in outcome.answers}
    for step in STEPS:
        name = f"trial: {step}"
        if step in done:
            seconds = f"{done[step]['seconds']:.1f} s"
            yield Line(name, done[step]["status"], f"{done[step]['found']}, {seconds}", done[step]["cure"])
            if done[step]["status"] == OK:
                continue
        else:
            failure = outcome.failure or "its process ended before it was done"
            if "JVM failed to start" in failure:
                failure = "; ".join([failure, *_JVM_SAYS.findall(outcome.output)])
            yield Line(name, PROBLEM, failure, "see the lines above; if all is well there, please report this")
        return


def main(folder: Path) -> None:
    """Encode, index and search in ``folder``, and answer with what each step came to."""
    import jnius_config

    from pyserini_rescale.plugin import patches

    jnius_config.add_options(f"-XX:ErrorFile={folder / 'jvm.log'}")  # not into the folder that doctor was started in
    patches.activate()
    for step, do in zip(STEPS, (_encode, _index, _search), strict=True):
        start = time.monotonic()
        found, wrong, cure = do(folder)
        status = PROBLEM if wrong else OK
        seconds = time.monotonic() - start
        answer({"step": step, "status": status, "found": found, "cure": cure, "seconds": seconds})
        if wrong:
            return


def _command(module: str, *arguments: str) -> None:
    """Run one of Pyserini's commands, as ``python -m`` does, in this process: one JVM and one import of PyTorch do for all."""
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _encode(folder: Path) -> tuple[str, bool, str]:
    corpus = folder / "corpus.jsonl"
    documents = [{"_id": docid, "title": "", "text": text} for docid, text in DOCUMENTS.items()]
    corpus.write_text("".join(json.dumps(one) + "\n" for one in documents), encoding="utf-8")
    _command(
        "pyserini.encode", "input", "--corpus", str(corpus), "--fields", "title", "text",
        "output", "--embeddings", str(folder / "embeddings"),
        "encoder", "--encoder", SHIPPED[0], "--encoder-class", "splade-rescaled", "--fields", "title", "text",
        "--max-length", _LENGTH, "--device", "cpu",
    )  # fmt: skip
    vectors = _vectors(folder)
    terms = sum(map(len, vectors.values())) / max(1, len(vectors))
    found = f"{len(vectors)} documents with {SHIPPED[0]}, {terms:,.0f} terms each"
    wrong = vectors.keys() != DOCUMENTS.keys() or not all(vectors.values())
    return found, wrong, f"{len(DOCUMENTS)} that have terms were given: please report this" if wrong else ""


def _vectors(folder: Path) -> dict[str, dict[str, int]]:
    files = sorted((folder / "embeddings").glob("*.jsonl"))
    records = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").split("\n") if line]
    return {record["id"]: record["vector"] for record in records}


def _index(folder: Path) -> tuple[str, bool, str]:
    _command(MODULE, *index_arguments("JsonVectorCollection", folder / "embeddings", folder / "index", 1, *IMPACTS))
    from pyserini.index.lucene import LuceneIndexReader

    statistics = LuceneIndexReader(str(folder / "index")).stats()
    found = f"{statistics['documents']} documents, {statistics['unique_terms']:,} terms"
    terms = len({term for vector in _vectors(folder).values() for term in vector})
    wrong = (statistics["documents"], statistics["unique_terms"]) != (len(DOCUMENTS), terms)
    return found, wrong, f"the vectors have {len(DOCUMENTS)} and {terms:,}: please report this" if wrong else ""


def _search(folder: Path) -> tuple[str, bool, str]:
    from pyserini.search.lucene import LuceneImpactSearcher

    searcher = LuceneImpactSearcher(str(folder / "index"), f"splade-rescaled:{SHIPPED[0]}")
    hits = {hit.docid: hit.score for hit in searcher.search(QUERY, k=len(DOCUMENTS))}
    query = searcher.query_encoder.encode(QUERY)
    expected = {
        docid: sum(impact * vector.get(term, 0) for term, impact in query.items())
        for docid, vector in _vectors(folder).items()
    }
    found = f"{', '.join(f'{docid} {score:,.0f}' for docid, score in hits.items())} for {QUERY!r}"
    # Anserini's scores are float32 in the end.
    same = hits.keys() == expected.keys() and all(
        abs(hits[one] - expected[one]) <= 1e-6 * expected[one] for one in hits
    )
    wanted = ", ".join(f"{docid} {score:,}" for docid, score in sorted(expected.items(), key=lambda one: -one[1]))
    return found, not same, "" if same else f"the vectors' dot products are {wanted}: please report this"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
