"""``regress report``, ``compare``, ``figure``, ``pages``: what many results say together."""

import argparse
import dataclasses
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyserini_rescale.cli.tables import aligned
from pyserini_rescale.errors import ConfigError, DataError
from pyserini_rescale.regression import measures, significance
from pyserini_rescale.regression import report as reports
from pyserini_rescale.regression.catalogue import Catalogue
from pyserini_rescale.regression.planning import Plan
from pyserini_rescale.regression.verify import EXIT_CODES

_QUERIES_SHOWN = 10


def add_actions(actions: Any, every: Any, chosen: Any, places: Any, described: dict[str, Any]) -> None:
    """Add the four actions to ``regress``; the parsers given are parents with common options."""
    text = "models x measures: published, measured, difference, verdict; from the results of earlier runs"
    report = actions.add_parser("report", parents=[every, chosen, places], help=text, description=text, **described)
    report.add_argument("--format", choices=reports.FORMATS, default="text", help="default: %(default)s")

    text = "two runs query by query: differences and a paired test"
    compare = actions.add_parser("compare", help=text, description=text, **described)
    compare.add_argument("a", type=Path, metavar="RUN_A", help="run file, the one that is compared with")
    compare.add_argument("b", type=Path, metavar="RUN_B", help="run file")
    compare.add_argument("--qrels", type=Path, required=True, help="TREC qrels of both")
    compare.add_argument(
        "--measures",
        nargs="+",
        default=["nDCG@10", "RR@10"],
        metavar="M",
        help="of ir_measures (default: nDCG@10 RR@10)",
    )
    compare.add_argument(
        "--test", choices=("t-test", "randomisation"), default="t-test",
        help=f"paired t-test, or randomisation test of {significance.PERMUTATIONS:,} sign flips (default: %(default)s)",
    )  # fmt: skip
    compare.add_argument("--seed", type=int, default=0, help="of the randomisation test (default: %(default)s)")
    compare.add_argument("--json", action="store_true", help="print JSON, with the values of every query")

    text = "a figure of arXiv 2606.18811 from results, published values hollow beside them"
    figure = actions.add_parser("figure", parents=[every, places], help=text, description=text, **described)
    figure.add_argument("number", type=int, choices=(1, 2, 3, 4), metavar="1|2|3|4")
    figure.add_argument("--output", type=Path, required=True, metavar="FILE", help="ends in .png, .svg or .pdf")

    text = "write a page per model file and an overview out of the YAML"
    pages = actions.add_parser("pages", parents=[every], help=text, description=text, **described)
    pages.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 where a page is not what it would be"
    )
    pages.add_argument(
        "--output", type=Path, default=Path("docs/regressions"), metavar="DIR", help="default: %(default)s"
    )


def report(plans: list[Plan], args: argparse.Namespace) -> int:
    found = reports.gather(plans)
    status = EXIT_CODES[found.verdict]
    if args.format == "json":
        cells = [dataclasses.asdict(cell) for cell in found.cells]
        print(json.dumps({"cells": cells, "problems": found.problems, "verdict": found.verdict}, indent=1))
        return status
    if args.format == "csv":
        print(reports.as_csv(found))
        return status
    print(reports.markdown(found) if args.format == "markdown" else aligned(reports.pivot(found)))
    for line in found.problems:
        print(f"problem: {line}")
    if args.format == "text":
        print(f"{len(found.cells)} figures: {found.verdict}")
    return status


def compare(args: argparse.Namespace) -> int:
    qrels = measures.read_qrels(args.qrels)
    runs = [measures.read_run(path) for path in (args.a, args.b)]
    for path, run in zip((args.a, args.b), runs, strict=True):
        answered = run.keys() & qrels.keys()
        if not answered:
            raise DataError(
                f"{path} answers none of the {len(qrels):,} queries that {args.qrels} judges: do they belong together?"
            )
        if len(answered) < len(qrels):
            print(
                f"note: {path} answers {len(answered):,} of {len(qrels):,} judged queries, the others score 0",
                file=sys.stderr,
            )
    values = [measures.per_query(args.measures, qrels, run) for run in runs]
    found = [
        significance.compare_values(name, values[0][name], values[1][name], args.test, args.seed)
        for name in dict.fromkeys(args.measures)
    ]
    if args.json:
        print(json.dumps([{**dataclasses.asdict(one), "difference": one.difference} for one in found], indent=1))
        return 0
    rows = [["", "A", "B", "B - A", "B above", "equal", "below", f"p ({args.test})"]]
    for one in found:
        p = "-" if one.p is None else f"{one.p:.4f}" if one.p >= 0.0001 else f"{one.p:.1e}"
        counts = [str(count) for count in (one.wins, one.ties, one.losses)]
        rows.append([one.measure, f"{one.a:.4f}", f"{one.b:.4f}", f"{one.difference:+.4f}", *counts, p])
    print(f"A: {args.a}\nB: {args.b}\n{len(qrels)} judged queries; one without hits scores 0\n\n{aligned(rows)}")
    for one in found:
        largest = one.largest(_QUERIES_SHOWN)
        if largest:
            print(f"\n{one.measure}: largest differences")
            print(aligned([["query", "A", "B"], *([name, f"{a:.4f}", f"{b:.4f}"] for name, a, b in largest)]))
    return 0


def figure(found: Catalogue, plans_of: Callable[..., list[Plan]], args: argparse.Namespace) -> int:
    from pyserini_rescale.figures import check_figure_file, save_figure
    from pyserini_rescale.regression import paper_figures

    check_figure_file(args.output, "--output")
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it would talk about its caches
    args.names, args.suite = [], paper_figures.SUITES[args.number]
    figure, notes = paper_figures.draw(args.number, plans_of(found, args))
    boxes = save_figure(figure, args.output)
    for note in [*notes, *([boxes] if boxes else [])]:
        print(f"note: {note}", file=sys.stderr)
    print(f"figure: {args.output}")
    return 0


def pages(found: Catalogue, args: argparse.Namespace) -> int:
    from pyserini_rescale.regression import pages as writer

    made = writer.pages(found)
    if args.check:
        wrong = writer.differences(made, args.output)
        for line in wrong:
            print(line)
        print(f"{len(made)} pages: {'as they should be' if not wrong else 'write them anew by `regress pages`'}")
        return 1 if wrong else 0
    try:
        writer.write(made, args.output)
    except OSError as error:
        raise ConfigError(f"--output {args.output} cannot be written: {error}") from None
    print(f"{len(made)} pages written to {args.output}")
    return 0
