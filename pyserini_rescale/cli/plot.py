"""``plot``: figures from the logs of runs."""

import argparse
import logging
import math
import sys
from pathlib import Path

from pyserini_rescale.cli.tables import aligned, number
from pyserini_rescale.figures import FORMATS, check_figure_file, save_figure
from pyserini_rescale.train import plot

HELP = "Figures from the logs of training runs."
EXAMPLES = """\
  python -m pyserini_rescale plot loss runs/train/modernbert-k1 runs/train/modernbert-k16 --output loss.png
  python -m pyserini_rescale plot loss runs/train/* --output loss.pdf --smooth 5 --title "ModernBERT"
  python -m pyserini_rescale plot loss A/log.jsonl B/log.jsonl --labels "k = 1" "k = 16" --output loss.svg
  python -m pyserini_rescale plot loss runs/train/* --measure document_active --output active.png
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="loss")
    text = "Loss against epoch, one line per run, with an inset on the last 40 % (the paper's Figure 4), and a table."
    loss = actions.add_parser(
        "loss",
        help="loss against epoch, one line per run",
        description=text,
        epilog="examples:\n" + EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    loss.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run's folder, or its log.jsonl")
    loss.add_argument("--output", required=True, type=Path, metavar="FILE", help=f"ends in {', '.join(FORMATS)}")
    loss.add_argument("--measure", default="contrastive", metavar="KEY", help="any logged key (default: %(default)s)")
    loss.add_argument("--labels", nargs="+", metavar="LABEL", help="names of the runs (default: their own)")
    loss.add_argument(
        "--smooth",
        type=int,
        default=1,
        metavar="N",
        help="draw means of N points; the table stays as logged (default: 1)",
    )
    loss.add_argument("--linear", action="store_true", help="a linear scale, which has a place for zeros")
    loss.add_argument("--title", help="text above the figure")


def run(args: argparse.Namespace) -> int:
    check_figure_file(args.output, "--output")
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it would talk about its caches
    runs = plot.load_runs(args.runs, args.labels)
    curves = [plot.curve(one, args.measure, linear=args.linear) for one in runs]
    figure = plot.draw(curves, args.measure, smooth=args.smooth, title=args.title, linear=args.linear)
    boxes = save_figure(figure, args.output)
    for one in curves:
        note = one.note() or (None if one.values else f"{one.label}: nothing logged, no line")
        if note:
            print(f"note: {note}", file=sys.stderr)
    if boxes:
        print(f"note: {boxes}", file=sys.stderr)
    print(_table([plot.summary(one, args.measure) for one in runs], args.measure))
    print(f"figure: {plot.shown(str(args.output))}")
    return 0


def _table(rows: list[plot.Summary], measure: str) -> str:
    """Return what ``measure`` did in each run; "last" is the mean over the last tenth of the logging steps."""
    measure = plot.shown(measure)
    cells = [["run", "steps", f"first {measure}", f"last {plot.LAST_SHARE:.0%}", "lowest", "document terms at end"]]
    for row in rows:
        values = [_value(value) for value in (row.first, row.last, row.lowest)]
        cells.append([row.label, number(row.steps, 0), *values, _value(row.active, 0)])
    return aligned(cells)


def _value(value: float | None, digits: int = 3) -> str:
    if value is None:
        return "-"
    if math.isnan(value):
        return "not finite"
    return number(value, digits) if value == 0 or 0.1 <= abs(value) < 1e9 else f"{value:.3g}"
