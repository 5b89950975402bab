"""``doctor``: is everything here that encoding, indexing, searching and training need."""

import argparse
import dataclasses
import json
import sys
import time

from pyserini_rescale.doctor.lines import PROBLEM, WARNING, Line

HELP = (
    "Check this installation: packages, Anserini and the Java it runs on, the start-up hook, devices, network and caches; "
    "then encode, index and search three documents with the backbone that comes with the package. Needs no network."
)
EXAMPLES = """\
  python -m pyserini_rescale doctor
  python -m pyserini_rescale doctor --quick          # without the three documents: no JVM is started
  python -m pyserini_rescale doctor --json > report.json

A line is OK, a warning (it works, with a limit) or a problem, and what to do stands behind the arrow.
exit status: 0 no problem, 1 a problem
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="do not encode, index and search")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")


def run(args: argparse.Namespace) -> int:
    from pyserini_rescale.doctor import report

    start, found = time.monotonic(), []
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # a path may hold what no terminal shows
    for line in report.lines(report.CHECKS if args.quick else report.CHECKS | report.LAST):
        found.append(line)
        if not args.json:
            print(_text(line), flush=True)
    seconds = time.monotonic() - start
    count = {status: sum(line.status == status for line in found) for status in (PROBLEM, WARNING)}
    if args.json:
        plain = {"problems": count[PROBLEM], "warnings": count[WARNING], "seconds": round(seconds, 1)}
        print(json.dumps({**plain, "lines": [dataclasses.asdict(line) for line in found]}, indent=1))
    else:
        print(f"\n{_number(count[PROBLEM], PROBLEM)}, {_number(count[WARNING], WARNING)}; {seconds:.0f} seconds")
    return 1 if count[PROBLEM] else 0


def _text(line: Line) -> str:
    cure = f" -> {line.cure}" if line.cure else ""
    return f"{line.status:<7}  {line.name:<18}  {line.found}{cure}"


def _number(count: int, word: str) -> str:
    return f"{count or 'no'} {word}{'' if count == 1 else 's'}"
