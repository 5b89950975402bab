"""``quickstart``: what a rescale does to a trained backbone, with nothing needed but this package."""

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyserini_rescale.cli.tables import aligned, number
from pyserini_rescale.errors import ConfigError
from pyserini_rescale.model.shipped import SHIPPED

if TYPE_CHECKING:
    from pyserini_rescale.quickstart.pipeline import Outcome, Row

HELP = (
    "See on this machine what the paper is about: measure the head of a small trained backbone, train a SPLADE model "
    "from it as it is, with the suggested k, the suggested offset and both, then encode, index and search with Pyserini, "
    "and compare, BM25 beside. Text: docstrings. No network, no GPU; about ten minutes on two cores."
)
EXAMPLES = """\
  python -m pyserini_rescale quickstart
  python -m pyserini_rescale quickstart --backbone mini-bert --work runs/quickstart-bert
  python -m pyserini_rescale quickstart --work runs/quickstart-large-rate --set optimizer.learning_rate=1e-3
"""
_SUGGEST_TEXTS = 128


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--work", type=Path, default=Path("runs/quickstart"), metavar="DIR", help="folder for all files (%(default)s)"
    )
    parser.add_argument(
        "--backbone",
        default=SHIPPED[0],
        choices=SHIPPED,
        help="which backbone of the package (%(default)s)",
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", help="settings at a time (default: one a core, four at most)"
    )
    parser.add_argument(
        "--set",
        action="extend",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="change the training, as in max_steps=20",
    )
    parser.add_argument("--force", action="store_true", help="do again what is up to date")


def run(args: argparse.Namespace) -> int:
    if args.workers is not None and args.workers < 1:
        raise ConfigError(f"--workers {args.workers}: 1 or more is needed")
    from pyserini_rescale.quickstart import pipeline

    workers = args.workers or min(len(pipeline.SETTINGS), os.cpu_count() or 1)
    _say(
        f"{len(pipeline.SETTINGS)} trainings of a small backbone, {workers} at a time, each then encoded, indexed and searched: "
        "about ten minutes on two free cores"
    )
    options = pipeline.Options(args.work, args.backbone, tuple(args.set), workers, args.force)
    outcome = pipeline.run(options, _say)
    figure = _draw(outcome)
    print("\n" + _report(outcome, figure))
    return 0


def _say(text: str) -> None:
    print(f"\n> {text}", file=sys.stderr, flush=True)


def _draw(outcome: "Outcome") -> Path:
    from pyserini_rescale.figures import save_figure
    from pyserini_rescale.quickstart.pipeline import SETTINGS
    from pyserini_rescale.train import plot

    runs = plot.load_runs(outcome.logs, [SETTINGS[row.name] for row in outcome.rows])
    curves = [plot.curve(one, "contrastive") for one in runs]
    path = outcome.work / "loss.png"
    save_figure(plot.draw(curves, "contrastive", title=f"{outcome.backbone}, trained {len(outcome.rows)} times"), path)
    return path


def _report(outcome: "Outcome", figure: Path) -> str:
    counts = outcome.counts
    work = outcome.work
    return f"""\
{counts["documents"]:,} documents and {counts["judged_queries"]:,} queries out of the standard library; relevant is the \
docstring whose first sentence is the query.
Active terms: of a query / of a document, before and after training. Loss: in-batch, contrastive, first and last steps.

{_table(outcome)}

Loss curves: {figure}
{outcome.seconds / 60:.1f} minutes. All of it lies in {work}, the commands that did it in {work}/{"quickstart.json"}; \
those of the last row:

{_commands(outcome)}

With a real backbone, on MS MARCO, on 8 GPUs (https://arxiv.org/abs/2606.18811, Table 2):

  python -m pyserini_rescale head suggest answerdotai/ModernBERT-base
  bash scripts/train_8gpu.sh table2:modernbert.k16
  bash scripts/train_8gpu.sh table2:modernbert.k1 --output runs/train/auto \\
      --set rescale.factor=auto rescale.scope=null rescale.shift=auto      # k and offset as suggested
  python -m pyserini_rescale collection msmarco-passage/dev/small --output msmarco
  python -m pyserini.encode input --corpus msmarco/corpus --fields title text output --embeddings msmarco-vectors \\
      encoder --encoder runs/train/modernbert.k16/model --encoder-class splade-rescaled --fields title text --device cuda:0

and on: README.md; what the figures rest on: docs/evidence.md."""


def _table(outcome: "Outcome") -> str:
    from pyserini_rescale.quickstart.pipeline import SETTINGS

    rows = [["", "k", "offset", "row norm", "loss", "active terms, before", "after", "MRR@10", "nDCG@10"]]
    rows += [[SETTINGS[row.name], *_cells(row)] for row in outcome.rows]
    rows.append(["BM25, on words", "", "", "", "", "", "", *(number(value, 3) for value in outcome.bm25.values())])
    return aligned(rows)


def _cells(row: "Row") -> list[str]:
    return [
        f"{row.k:g}",
        number(row.offset, 2),
        number(row.row_norm, 2),
        f"{row.loss[0]:,.3g} > {row.loss[1]:.3g}",
        f"{row.query_terms[0]:,.0f} / {row.document_terms[0]:,.0f}",
        f"{row.query_terms[1]:,.0f} / {row.document_terms[1]:,.0f}",
        *(number(value, 3) for value in row.measures.values()),
    ]


def _commands(outcome: "Outcome") -> str:
    last = outcome.rows[-1].name
    chosen = [stage for stage in outcome.stages if stage.name.startswith(f"{last}.")]
    return "\n".join(f"  {shlex.join(stage.argv)}" for stage in chosen if not stage.name.endswith("statistics"))
