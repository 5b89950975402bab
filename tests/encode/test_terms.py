"""Ids to terms: what a whitespace analyzer would break is escaped, everything else is the token itself."""

import sys

import pytest

from pyserini_rescale.encode.terms import ESCAPE, LONGEST, index_terms, is_index_safe, special_ids
from tests.model.builders import build, make_word_tokenizer


class Vocabulary:
    """The two things that terms.py asks of a tokenizer."""

    def __init__(self, tokens, special=()):
        self.tokens, self.all_special_ids = tokens, list(special)

    def get_vocab(self):
        return dict(self.tokens)


AWKWARD = [
    "",
    " ",
    "  ",
    "\n\n",
    "a b",
    "a\tb",
    "\u2028",
    "\u3000x",
    "x\x1c",
    "\x0b",
    "\u00a0",
    "\u202f",
    "\x85",
    "\x00",
]
AWKWARD += ["\ud800"]
FINE = ["[CLS]", "[id]", "##ing", "\u0120word", "\u2581mot", "a-b", "%20", "\u200b", "\U0001f600", "id:3]", "\\u0020"]


@pytest.mark.parametrize("token", AWKWARD)
def test_awkward_tokens_are_written_by_their_id(token):
    assert not is_index_safe(token)
    assert index_terms(Vocabulary({token: 1, "x": 0}), 2).tolist() == ["x", "[id:1]"]


@pytest.mark.parametrize("token", FINE)
def test_ordinary_tokens_are_themselves(token):
    assert is_index_safe(token)
    assert index_terms(Vocabulary({token: 0}), 1).tolist() == [token]


def test_lucenes_limit_counts_utf16_units():
    assert LONGEST == 255
    assert is_index_safe("x" * 255) and not is_index_safe("x" * 256)
    assert is_index_safe("\U0001f600" * 127) and not is_index_safe("\U0001f600" * 128)


def test_two_ids_never_share_a_term():
    """Also when the vocabulary holds what an escape looks like."""
    tokens = {"[id:1]": 0, " ": 1, "[id:0]": 2, "[id:": 3, "[id:2]x": 4, "x": 6, "": 7}
    terms = index_terms(Vocabulary(tokens), 10).tolist()
    assert len(set(terms)) == 10 and all(" " not in term and term for term in terms)
    assert [terms[number] for number in (1, 5, 8, 9)] == ["[id:1]", "[id:5]", "[id:8]", "[id:9]"]
    for number, term in enumerate(terms):
        assert int(term[len(ESCAPE) : -1]) == number if term.startswith(ESCAPE) else tokens[term] == number


def test_ids_beyond_the_tokenizer_have_stable_names_and_tokens_beyond_the_model_none():
    terms = index_terms(Vocabulary({"a": 0, "b": 1, "far": 9}), 4).tolist()
    assert terms == ["a", "b", "[id:2]", "[id:3]"]


def test_two_tokens_with_one_id_give_the_same_term_in_any_order():
    assert index_terms(Vocabulary({"a": 0, "b": 0}), 1)[0] == index_terms(Vocabulary({"b": 0, "a": 0}), 1)[0]


def test_special_ids():
    tokenizer = make_word_tokenizer(build("bert"))
    assert special_ids(tokenizer, 103).tolist() == [0, 1, 2, 3, 4]
    assert special_ids(Vocabulary({}, special=[7, 3, 3, 200]), 103).tolist() == [3, 7]


def test_added_tokens_of_a_real_tokenizer():
    tokenizer = make_word_tokenizer(build("bert"))
    tokenizer.add_tokens(["   ", "two words"])
    terms = index_terms(tokenizer, 103).tolist()
    assert [terms[tokenizer.convert_tokens_to_ids(token)] for token in ("   ", "two words")] == ["[id:25]", "[id:26]"]
    assert terms[5:8] == ["the", "a", "of"] and terms[102] == "[id:102]"


def test_a_trained_vocabulary_is_unchanged(splade_tiny):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(splade_tiny)
    assert index_terms(tokenizer, 30522).tolist() == tokenizer.convert_ids_to_tokens(list(range(30522)))


@pytest.mark.jvm
def test_every_character_that_java_splits_on_is_escaped(pyserini_encode):
    from pyserini.pyclass import autoclass  # with Anserini on the class path, for the tests that follow

    character = autoclass("java.lang.Character")
    points = [point for point in range(0x3100) if character.isWhitespace(point)]
    points += [point for point in range(0x3100, sys.maxunicode, 997) if character.isWhitespace(point)]
    assert {9, 10, 32, 0x1C, 0x2028, 0x3000} <= set(points)
    assert [point for point in points if is_index_safe(f"a{chr(point)}b")] == []
