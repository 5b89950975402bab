"""What a score is the sum of, and terms as a person writes them."""

import json

import pytest

from pyserini_rescale.cli import main
from pyserini_rescale.encode.base import DocumentTexts
from pyserini_rescale.encode.explain import Shared, Side, explain, readable


def test_contributions_add_up_to_the_score():
    query = Side({"a": 3, "b": 2, "c": 5}, frozenset("ab"))
    document = Side({"c": 1, "b": 10, "d": 4, "a": 2}, frozenset("b"))
    found = explain(query, document)
    assert found.score == 3 * 2 + 2 * 10 + 5 * 1
    assert found.shared == (Shared("b", 2, 10), Shared("a", 3, 2), Shared("c", 5, 1))
    assert query.expansions(9) == [("c", 5)] and document.expansions(2) == [("d", 4), ("a", 2)]
    assert document.largest(2) == [("b", 10), ("d", 4)] and Side({}, None).expansions(3) == []
    assert explain(query, Side({}, None)).score == 0


class Tokenizer:
    def convert_ids_to_tokens(self, number):
        return {3: "two words"}.get(number)

    def convert_tokens_to_string(self, tokens):
        return tokens[0].replace("Ġ", " ").replace("Ã©", "é")


@pytest.mark.parametrize(
    ("term", "word"),
    [
        ("wind", "wind"),
        ("##ing", "-ing"),
        ("Ġwind", "wind"),
        ("cafÃ©", "café"),
        ("[id:3]", "'two words'"),
        ("[id:9]", "[id:9]"),
        ("Ġ", "'Ġ'"),
    ],
)
def test_terms_are_readable(term, word):
    assert readable(term, Tokenizer()) == word


def test_the_command(bert, capsys):
    assert (
        main(["explain", "--encoder", bert, "--query", "wind tunnel", "--doc", "heat flow in a tunnel", "--json"]) == 0
    )
    found = json.loads(capsys.readouterr().out)
    one = DocumentTexts(bert, device="cpu")
    query, document = one.encode(["wind tunnel", "heat flow in a tunnel"])
    assert found["score"] == sum(impact * document.get(term, 0) for term, impact in query.items()) > 0
    assert found["shared_terms"] == len(query.keys() & document.keys())
    tunnel = [line for line in found["shared"] if line["word"] == "tunnel"]
    assert all(line["query_has_it"] and line["document_has_it"] for line in tunnel)
    assert not {line["word"] for line in found["query"]["expansions"]} & {"wind", "tunnel", "[CLS]", "[SEP]"}
    assert main(["explain", "--encoder", bert, "--query", "wind tunnel", "--doc", "heat flow", "--terms", "3"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("score ") and "expansions (not in its text)" in text and "more" in text


@pytest.mark.parametrize(
    "more",
    [
        [],
        ["--doc", "x", "--index", "i", "--docid", "d"],
        ["--index", "i"],
        ["--docid", "d", "--doc", "x"],
        ["--doc", "x", "--terms", "0"],
    ],
)
def test_options_that_cannot_be(more, capsys):
    assert main(["explain", "--encoder", "m", "--query", "q", *more]) == 2
    assert capsys.readouterr().err.startswith("error: ")
