"""Vocabulary ids to index terms.

A term is the token as the tokenizer's vocabulary spells it ("retrieval", "##ing", a word with a leading G-breve), so
an index reads as one made by Pyserini. Anserini indexes a vector as text, each term repeated impact times, through
Lucene's whitespace analyzer; some tokens do not survive that, and one of them corrupts the impacts of others:

- tokens with white space in them (runs of spaces and newlines that byte-level BPE vocabularies add) split, and vanish
  or raise the impact of what they split into;
- the empty token vanishes;
- tokens of more than 255 UTF-16 units are cut into pieces;
- unpaired surrogates all become the same question mark in UTF-8.

Such a token is written ``[id:N]``, N being its id. So are ids that have no token (vocabularies padded to a round
size): queries and documents then agree on them, and the dot product stays exact. A token that itself starts with
``[id:`` is written that way too, so two ids never share a term, and a term is read back by ``int(term[4:-1])`` or from
the vocabulary.
"""

import re
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ESCAPE = "[id:"
LONGEST = 255  # Lucene's WhitespaceTokenizer, in UTF-16 units

# White space by Python's rule, which holds all that Java's Character.isWhitespace splits on (and the no-break spaces,
# on which str.split splits); control characters; unpaired surrogates.
_UNSAFE = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def survives(term: str) -> bool:
    """Return whether ``term`` comes out of a whitespace analyzer as the one term that went in."""
    return bool(term) and not _UNSAFE.search(term) and len(term.encode("utf-16-le")) <= 2 * LONGEST


def is_index_safe(term: str) -> bool:
    """Return whether a token can be written as it is: it survives, and is not taken for an id."""
    return not term.startswith(ESCAPE) and survives(term)


def index_terms(tokenizer: "PreTrainedTokenizerBase", size: int) -> np.ndarray:
    """Return the term of each of the model's ``size`` vocabulary ids, as an object array (V,) of distinct strings."""
    terms = np.array([f"{ESCAPE}{number}]" for number in range(size)], dtype=object)
    for token, number in sorted(
        tokenizer.get_vocab().items()
    ):  # sorted: should two tokens share an id, always the same
        if number < size and is_index_safe(token):
            terms[number] = token
    return terms


def special_ids(tokenizer: "PreTrainedTokenizerBase", size: int) -> np.ndarray:
    """Return the ids of the tokenizer's special tokens ([CLS], [SEP], ...) that the model has, ascending."""
    return np.array(sorted(number for number in set(tokenizer.all_special_ids) if number < size), dtype=np.int64)
