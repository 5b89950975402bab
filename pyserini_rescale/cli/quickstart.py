"""``quickstart``: the main job on a small collection, with nothing needed but this package."""

import argparse
import os
import shlex
import shutil
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from pyserini_rescale.cli.tables import aligned, number
from pyserini_rescale.errors import ConfigError

if TYPE_CHECKING:
    from pyserini_rescale.quickstart.pipeline import Outcome

HELP = (
    "The main job on a small collection: rescale the head of a masked language model, encode, index and search with "
    "Pyserini, score. Collection: docstrings of this Python's standard library. Model: made on the spot. No network."
)
EXAMPLES = """\
  python -m pyserini_rescale quickstart
  python -m pyserini_rescale quickstart --k 4 --work runs/quickstart-k4
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--work", type=Path, default=Path("runs/quickstart"), metavar="DIR", help="folder for all files (%(default)s)"
    )
    parser.add_argument(
        "--k", type=float, default=16.0, help="factor the head is divided by (%(default)g; 1 takes long, see output)"
    )
    parser.add_argument("--documents", type=int, metavar="N", help="use only N docstrings (default: all, about 3,000)")
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count() or 1, help="indexing threads (default: %(default)s)"
    )
    parser.add_argument("--force", action="store_true", help="do again what is up to date")


def run(args: argparse.Namespace) -> int:
    if args.threads < 1:
        raise ConfigError(f"--threads {args.threads}: 1 or more is needed")
    if not 0 < args.k < float("inf"):
        raise ConfigError(f"--k {args.k:g}: a number above 0 is needed")
    from pyserini_rescale.quickstart import pipeline

    options = pipeline.Options(args.work, args.k, args.documents, args.threads, args.force)
    outcome = pipeline.run(options, lambda text: print(f"\n> {text}", file=sys.stderr, flush=True))
    print(_report(outcome))
    return 0


def _report(outcome: "Outcome") -> str:
    return "\n\n".join([_scores(outcome), *_examples(outcome), _what_next(outcome)])


def _scores(outcome: "Outcome") -> str:
    rows = [["", "mean row norm", "terms a query", "terms a document", "MRR@10", "nDCG@10"]]
    models = [outcome.before] if outcome.before == outcome.after else [outcome.before, outcome.after]
    for model in models:
        rows.append([
            f"k = {model.k:g}, in memory", number(model.row_norm, 2), number(model.query_terms, 0),
            number(model.document_terms, 0), number(model.measures["RR@10"]), number(model.measures["nDCG@10"]),
        ])  # fmt: skip
    index = outcome.statistics["index"]
    rows.append([
        f"k = {outcome.after.k:g}, Pyserini", "", "", number(index["postings"] / max(1, index["documents"]), 0),
        number(outcome.measures["RR@10"]), number(outcome.measures["nDCG@10"]),
    ])  # fmt: skip
    counts = outcome.counts
    return (
        f"\n{counts.documents:,} documents, {counts.judged_queries:,} queries; "
        "relevant is the docstring that a query was cut from\n\n" + aligned(rows)
    )


def _examples(outcome: "Outcome") -> list[str]:
    width = shutil.get_terminal_size((110, 24)).columns
    blocks = []
    for example in outcome.examples:
        place = "not among the hits" if example.place is None else f"found at rank {example.place}"
        lines = [f"query: {example.query}", f"  cut from {example.document}, {place}"]
        for rank, (document, score, text) in enumerate(example.hits, start=1):
            line = f"{rank}. {score:,.0f}  {document}: {text}"
            lines.append("  " + textwrap.shorten(line, width - 2, placeholder=" ...", break_on_hyphens=False))
        blocks.append("\n".join(lines))
    return blocks


def _what_next(outcome: "Outcome") -> str:
    work = outcome.work
    commands = "\n".join(f"  {line}" for line in _commands(outcome))
    return f"""\
What happened, in {outcome.seconds:.0f} seconds: docstrings became a test collection; a masked language model was made,
its head measured and divided by {outcome.after.k:g}; Pyserini encoded, indexed and searched with it; the run was scored
as trec_eval does.
The model is made and not trained: it matches words, and was built with a head as large as ModernBERT-base's so that the
effect of k can be seen. The figures say that the chain works, nothing about trained models.

All of it lies in {work}: collection/ model/ embeddings/ index/ run.txt statistics.json quickstart.json logs/ records/
The commands that did it, for you to change:
{commands}
Next:
  python -m pyserini_rescale regress run scifact.splade-tiny      a trained model on BEIR SciFact, figures checked
  python -m pyserini_rescale head show MODEL                      the head of any masked language model
  python -m pyserini_rescale train --help                         train one on triples, on this machine or on many GPUs
  python -m pyserini_rescale collection BEIR_FOLDER --output DIR  a collection of your own
  python -m pyserini_rescale --help"""


def _commands(outcome: "Outcome") -> list[str]:
    return [shlex.join(stage.argv) for stage in outcome.stages if stage.name != "statistics"]
