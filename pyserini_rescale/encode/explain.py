"""Why a document has its score: the terms it shares with the query, what each contributes, and how each side was expanded."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from pyserini_rescale.encode.terms import ESCAPE


@dataclasses.dataclass(frozen=True)
class Shared:
    """A term of both sides; contribution = query * document."""

    term: str
    query: int
    document: int

    @property
    def contribution(self) -> int:
        return self.query * self.document


@dataclasses.dataclass(frozen=True)
class Side:
    """A query's or a document's vector. own: the terms of its text's own tokens; None where the text is not known."""

    vector: Mapping[str, int]
    own: frozenset[str] | None

    def largest(self, number: int) -> list[tuple[str, int]]:
        """Return the terms of the largest impacts; of equals, in the order of the alphabet."""
        return sorted(self.vector.items(), key=lambda pair: (-pair[1], pair[0]))[:number]

    def expansions(self, number: int) -> list[tuple[str, int]]:
        """Return the largest of those that the text does not hold; [] where the text is not known."""
        if self.own is None:
            return []
        outside = {term: impact for term, impact in self.vector.items() if term not in self.own}
        return Side(outside, None).largest(number)


@dataclasses.dataclass(frozen=True)
class Explanation:
    """A score, and what it is the sum of, the largest first."""

    score: int
    shared: tuple[Shared, ...]
    query: Side
    document: Side


def explain(query: Side, document: Side) -> Explanation:
    """Return the explanation of the dot product of two vectors of impacts."""
    shared = [
        Shared(term, impact, document.vector[term]) for term, impact in query.vector.items() if term in document.vector
    ]
    shared.sort(key=lambda one: (-one.contribution, one.term))
    return Explanation(sum(one.contribution for one in shared), tuple(shared), query, document)


def readable(term: str, tokenizer: Any) -> str:
    """Return a term as a person would write it: bytes decoded, a piece inside a word with a hyphen before it."""
    if term.startswith(ESCAPE):
        token = tokenizer.convert_ids_to_tokens(int(term[len(ESCAPE) : -1]))
        return term if token is None else repr(token)
    if term.startswith("##"):
        return "-" + term[2:]
    return tokenizer.convert_tokens_to_string([term]).strip() or repr(term)
