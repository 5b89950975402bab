"""Docstrings as a collection: what is read, what is left out, and that no test text is trained on."""

import pytest

from pyserini_rescale import docstrings
from pyserini_rescale.collections import open_collection, passages_as_collection
from pyserini_rescale.docstrings import Overlap, Passage, read_installed, read_passages
from pyserini_rescale.errors import DataError

SOURCE = '''\
"""A module about nothing at all. It has a second sentence of some words."""

class Box:
    """Holds a thing or two.

    The rest of it comes after an empty line and is long enough.
    """

    def open(self):
        """Open the box very slowly
        over two lines. Then look inside of the box itself."""

    def close(self):
        """Too short. But this part is long enough, is it not?"""

    async def shake(self):
        """Shake it with both hands. Stop."""

def twin():
    """Another first sentence of words. It has a second sentence of some words."""
'''


def library(root, copies: int = 0) -> None:
    """A library of one module that is read, and others that are not; and ``copies`` more passages."""
    (root / "pkg" / "test").mkdir(parents=True)
    (root / "pkg" / "__init__.py").write_text(SOURCE)
    (root / "pkg" / "test" / "left_out.py").write_text('"""This is not to be read. No word of it may be seen."""')
    (root / "broken.py").write_text("def (:")
    extra = [
        f'def f{n}():\n    """Return the number {n} times. The number is {n} and not {n + 1}."""\n'
        for n in range(copies)
    ]
    (root / "pkg" / "extra.py").write_text("\n".join(extra))


def test_passages_are_first_sentences_and_rests(tmp_path):
    library(tmp_path, copies=120)
    found = [passage for passage in read_passages(tmp_path) if passage.id.split(".")[1:2] != ["extra"]]
    assert found == [
        Passage("pkg", "A module about nothing at all.", "It has a second sentence of some words."),
        Passage("pkg.Box", "Holds a thing or two.", "The rest of it comes after an empty line and is long enough."),
        Passage("pkg.Box.open", "Open the box very slowly over two lines.", "Then look inside of the box itself."),
    ]


def test_a_python_without_its_sources_is_refused(tmp_path):
    library(tmp_path)
    with pytest.raises(DataError, match="only 3 docstrings"):
        read_passages(tmp_path)


@pytest.mark.slow
def test_the_library_of_this_python_is_large_enough():
    found = read_passages()
    assert len(found) >= 2500
    assert len({passage.id for passage in found}) == len({passage.text for passage in found}) == len(found)
    assert not any(character.isspace() for passage in found for character in passage.id)


def test_equal_queries_share_their_documents():
    passages = [
        Passage("a", "Emit a record.", "one"),
        Passage("b", "Other.", "two"),
        Passage("c", "Emit a record.", "three"),
    ]
    found = passages_as_collection(passages, queries=2)
    assert list(found.queries()) == [("a", "Emit a record."), ("b", "Other.")]
    assert list(found.judgements()) == [("a", "a", 1), ("b", "b", 1), ("a", "c", 1)]
    assert list(found.documents())[1] == ("b", "", "two")


def test_queries_are_spaced_evenly():
    passages = [Passage(str(number), f"Query {number}.", f"text {number}") for number in range(10)]
    assert [query.id for query in passages_as_collection(passages, queries=4).queries()] == ["0", "2", "5", "7"]


def test_installed_packages_are_read_without_what_is_tested(tmp_path, monkeypatch):
    library(tmp_path, copies=120)
    monkeypatch.syspath_prepend(str(tmp_path))  # packages may lie outside this environment's own folder
    hidden = [
        Passage("lib.a", "Holds a thing or two!", "Anything else."),
        Passage("lib.b", "Return the number 7 times.", "The number is 7 and not 8."),
        Passage("lib.c", "Other words.", "then look inside of the box itself, which has a lid"),
    ]
    found = {passage.id: passage for passage in read_installed(["pkg", "absent"], hidden)}
    assert "pkg" in found and "pkg.extra.f6" in found
    assert "pkg.Box" not in found  # its first sentence is a query
    assert "pkg.extra.f7" not in found  # a document
    assert "pkg.Box.open" in found  # it shares seven words with a document, not eight
    with pytest.raises(DataError, match="not there: absent"):
        read_installed(["absent"])


def test_overlap_is_a_whole_text_or_eight_words_from_its_beginning():
    overlap = Overlap(["One two three.", "a b c d e f g h i j"])
    assert overlap.with_text("one, two (three)")
    assert not overlap.with_text("one two three four")
    assert overlap.with_text("so: A B c d e f g h, and more")
    assert not overlap.with_text("b c d e f g h i j")


def test_an_unknown_split_is_refused():
    with pytest.raises(DataError, match="no split 'dev'"):
        open_collection("docstrings", "dev")


@pytest.mark.slow
def test_no_training_text_holds_a_test_text():
    tested, trained = open_collection("docstrings", "test"), open_collection("docstrings", "train")
    words = {" ".join(docstrings._WORD.findall(text.lower())) for text in (
        *(document.text for document in tested.documents()), *(query.text for query in tested.queries()))}  # fmt: skip
    assert len(list(tested.documents())) >= 2500 and len(list(tested.queries())) >= 1000
    texts = [*(document.text for document in trained.documents()), *(query.text for query in trained.queries())]
    assert len(texts) > 10_000
    assert not [text for text in texts if " ".join(docstrings._WORD.findall(text.lower())) in words]
