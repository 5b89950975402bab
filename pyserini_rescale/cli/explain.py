"""``explain``: why a document has its score for a query."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyserini_rescale.cli.tables import aligned
from pyserini_rescale.errors import ConfigError

if TYPE_CHECKING:
    from pyserini_rescale.encode.explain import Side

HELP = "Show the terms that a query and a document share, what each adds to the score, and how both were expanded."
EXAMPLES = """\
  python -m pyserini_rescale explain --encoder MODEL --query "how do drugs resist microbes" --doc "Antimicrobial resistance ..."
  python -m pyserini_rescale explain --encoder MODEL --query "how do drugs resist microbes" --index scifact-index --docid 4983

Impacts are those of the index's scale, where --index names one that says it. Terms marked * are not in the query's text, nor in
the document's where that is given.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--encoder", required=True, metavar="MODEL", help="folder or Hub id of a masked language model")
    parser.add_argument("--query", required=True, metavar="TEXT")
    parser.add_argument("--doc", metavar="TEXT", help="a document's text")
    parser.add_argument("--index", type=Path, metavar="FOLDER", help="an index that has the document")
    parser.add_argument("--docid", metavar="ID", help="the document's id, with --index")
    parser.add_argument(
        "--terms", type=int, default=15, metavar="N", help="how many of each kind to show (default: %(default)s)"
    )
    parser.add_argument("--device", default="cpu", help="default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    if (args.doc is None) == (args.index is None) or (args.index is None) != (args.docid is None):
        raise ConfigError("either --doc TEXT or --index FOLDER and --docid ID is needed")
    if args.terms < 1:
        raise ConfigError(f"--terms {args.terms}: 1 or more is needed")
    from pyserini_rescale.encode.explain import Explanation, Side, explain, readable

    encoder, scale = _encoder(args)

    def side(text: str, length: int) -> Side:
        kept, impacts, _ = scale.quantize(*encoder.weights([text], length)[0])
        vector = dict(zip(encoder.terms[kept].tolist(), impacts.tolist(), strict=True))
        return Side(vector, frozenset(encoder.own_terms(text, length)))

    from pyserini_rescale.encode import corpus, topics
    from pyserini_rescale.encode.untyped import UntypedInt

    query = side(args.query, encoder.policy.query_length or encoder.document_length(UntypedInt(topics.LENGTH)))
    if args.doc is not None:
        document = side(args.doc, encoder.document_length(UntypedInt(corpus.LENGTH)))
    else:
        from pyserini_rescale.indexing import document_vector

        document = Side(document_vector(args.index, args.docid), None)
    found: Explanation = explain(query, document)

    def word(term: str) -> str:
        return readable(term, encoder.tokenizer)

    shown = {
        "score": found.score,
        "shared": [
            {
                "term": one.term,
                "word": word(one.term),
                "query": one.query,
                "document": one.document,
                "contribution": one.contribution,
                "query_has_it": _has(query, one.term),
                "document_has_it": _has(document, one.term),
            }
            for one in found.shared[: args.terms]
        ],
        "shared_terms": len(found.shared),
        **{name: _side(one, word, args.terms) for name, one in (("query", query), ("document", document))},
    }
    print(json.dumps(shown, indent=1, ensure_ascii=False) if args.json else _text(shown))
    return 0


def _encoder(args: argparse.Namespace) -> tuple[Any, Any]:
    """Return the encoder and the scale: the index's, where it says one, else the model's."""
    from pyserini_rescale.encode.base import DocumentTexts
    from pyserini_rescale.encode.marker import index_marker
    from pyserini_rescale.encode.quantize import from_json, of_policy

    said = index_marker(args.index) if args.index is not None else None
    encoder = DocumentTexts(args.encoder, device=args.device)
    return encoder, of_policy(encoder.policy) if said is None else from_json(said["quantizer"])


def _has(side: "Side", term: str) -> bool | None:
    return None if side.own is None else term in side.own


def _side(side: Any, word: Any, number: int) -> dict[str, Any]:
    def listed(terms: list[tuple[str, int]]) -> list[dict[str, Any]]:
        return [{"term": term, "word": word(term), "impact": impact} for term, impact in terms]

    found = {"terms": len(side.vector), "largest": listed(side.largest(number))}
    return {**found, "expansions": None if side.own is None else listed(side.expansions(number))}


def _text(shown: dict[str, Any]) -> str:
    score = shown["score"]
    rows = [["term", "query", "document", "adds", "of the score"]]
    for one in shown["shared"]:
        mark = "" if one["query_has_it"] or one["document_has_it"] else " *"
        share = f"{one['contribution'] / score:.1%}"
        numbers = [f"{one[name]:,}" for name in ("query", "document", "contribution")]
        rows.append([one["word"] + mark, *numbers, share])
    more = shown["shared_terms"] - len(shown["shared"])
    lines = [f"score {score:,}, of {shown['shared_terms']:,} shared terms", "", aligned(rows)]
    lines += [f"and {more:,} more"] if more else []
    for name in ("query", "document"):
        side = shown[name]
        kind = "largest" if side["expansions"] is None else "expansions"
        title = "largest terms" if side["expansions"] is None else "largest expansions (not in its text)"
        words = ", ".join(f"{one['word']} {one['impact']}" for one in side[kind])
        lines += ["", f"{name}: {side['terms']:,} terms; {title}:", f"  {words or 'none'}"]
    return "\n".join(lines)
