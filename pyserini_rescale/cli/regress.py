"""``regress``: list, show, run and verify regressions."""

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyserini_rescale import yaml_files
from pyserini_rescale.cli.tables import aligned, number
from pyserini_rescale.errors import ConfigError, StageError, one_line
from pyserini_rescale.regression import catalogue, runner, spec
from pyserini_rescale.regression.stages import shell_form, why_stale

HELP = "Regressions: one model on one collection, from YAML to encode, index, search and a verdict."
EXAMPLES = """\
  python -m pyserini_rescale regress list
  python -m pyserini_rescale regress show scifact.splade-tiny
  python -m pyserini_rescale regress run scifact.splade-tiny
  python -m pyserini_rescale regress run scifact.splade-tiny --data ~/beir --models ~/models --threads 8 --device cuda:0
  python -m pyserini_rescale regress run scifact.splade-tiny --dry-run
  python -m pyserini_rescale regress run scifact.splade-tiny --stages search,verify --force
  python -m pyserini_rescale regress verify scifact.splade-tiny --json

Data and models: --data DIR contains scifact/, --models DIR contains splade-tiny/; or PYSERINI_RESCALE_DATA and
PYSERINI_RESCALE_MODELS say so. Without them data comes through ir_datasets, a model from the package or Hub that its
YAML names.

exit status: 0 all figures OK, 1 a figure or check FAILs (higher than expected is a FAIL too), 2 bad option or YAML,
3 a stage failed, 4 nothing FAILs but a figure is MISSING.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="list|show|run|verify")
    every = argparse.ArgumentParser(add_help=False)
    every.add_argument(
        "--specs", type=Path, metavar="DIR", help="folder with collections/ and models/ in place of ours"
    )
    every.add_argument("--json", action="store_true", help="print JSON; progress still goes to stderr")
    places = argparse.ArgumentParser(add_help=False)
    places.add_argument("--data", type=Path, metavar="DIR", help="folder that contains the collection's folder")
    places.add_argument("--models", type=Path, metavar="DIR", help="folder that contains the model's folder")
    places.add_argument(
        "--work", type=Path, metavar="DIR", help="work folder (default: runs/NAME; DIR/NAME for several names)"
    )
    places.add_argument("--device", default="cpu", help="device for encoding (default: %(default)s)")
    places.add_argument(
        "--threads", type=int, default=os.cpu_count() or 1, help="indexing threads (default: %(default)s)"
    )
    described = {"formatter_class": argparse.RawDescriptionHelpFormatter, "epilog": "examples:\n" + EXAMPLES}
    actions.add_parser("list", parents=[every], help="all regressions", **described)
    for name, text in (
        ("show", "what a regression expects, and its commands"),
        ("run", "run the stages that are not up to date, then verify"),
        ("verify", "judge what the work folder holds"),
    ):
        action = actions.add_parser(name, parents=[every, places], help=text, description=text, **described)
        action.add_argument("names", nargs="+", metavar="NAME", help="COLLECTION.MODEL, as `regress list` prints it")
        if name == "run":
            action.add_argument(
                "--dry-run", action="store_true", help="print the commands and what is up to date, run nothing"
            )
            action.add_argument("--stages", metavar="A,B", help="only these stages (verify is one)")
            action.add_argument("--force", action="store_true", help="run stages that are up to date, too")


def run(args: argparse.Namespace) -> int:
    folder = args.specs or yaml_files.default_folder()
    if args.action == "list":
        return _list(catalogue.load_all(folder), args.json)
    if args.threads < 1:
        raise ConfigError(f"--threads {args.threads}: 1 or more is needed")
    plans = [
        runner.plan(regression, _options(args, regression.name)) for regression in catalogue.choose(args.names, folder)
    ]
    if args.action == "show":
        return _show(plans, args.json)
    if args.action == "run" and args.dry_run:
        return _dry_run(plans, args.json)
    return _judge(plans, args)


def _options(args: argparse.Namespace, name: str) -> runner.Options:
    work = args.work
    if work is not None and len(set(args.names)) > 1:
        work = work / name
    return runner.Options(args.data, args.models, work, args.device, args.threads)


def _list(regressions: dict[str, spec.Regression], as_json: bool) -> int:
    if as_json:
        print(json.dumps([{"name": name, **_spec(found)} for name, found in regressions.items()], indent=1))
        return 0
    width = max(map(len, regressions), default=0)
    for name, found in regressions.items():
        figures = found.expected.measures.items()
        known = ", ".join(
            f"{measure} {figure.reference:.4f}" for measure, figure in figures if figure.reference is not None
        )
        print(f"{name:<{width}}  {known or 'nothing measured yet'}")
    return 0


def _spec(regression: spec.Regression) -> dict[str, Any]:
    return {
        "collection": regression.collection.model_dump(exclude_none=True),
        "model": regression.model.model_dump(exclude={"expected"}, exclude_none=True),
        "expected": regression.expected.model_dump(exclude_none=True),
    }


def _show(plans: list[runner.Plan], as_json: bool) -> int:
    shown = [
        {
            "name": plan.regression.name,
            **_spec(plan.regression),
            "places": {"collection": plan.source, "model": plan.model, "work": str(plan.place.work)},
            "commands": [shell_form(stage.argv) for stage in plan.stages],
        }
        for plan in plans
    ]
    if as_json:
        print(json.dumps(shown, indent=1))
        return 0
    for entry in shown:
        print(yaml_files.to_yaml({key: value for key, value in entry.items() if key != "commands"}))
        print("# commands\n" + "\n\n".join(entry["commands"]))
    return 0


def _dry_run(plans: list[runner.Plan], as_json: bool) -> int:
    shown = [
        {
            "name": plan.regression.name,
            "stages": [
                {"stage": stage.name, "would_run": why_stale(stage, plan.place), "command": list(stage.argv)}
                for stage in plan.stages
            ],
        }
        for plan in plans
    ]
    if as_json:
        print(json.dumps(shown, indent=1))
        return 0
    for plan, entry in zip(plans, shown, strict=True):
        print(f"# {plan.regression.name} in {plan.place.work}")
        before = None
        for stage in entry["stages"]:
            reason = stage["would_run"] or before
            before = reason and f"after {stage['stage']}"
            print(
                f"# {stage['stage']}: {f'would run ({reason})' if reason else 'up to date'}\n"
                f"{shell_form(stage['command'])}\n"
            )
    return 0


def _judge(plans: list[runner.Plan], args: argparse.Namespace) -> int:
    only = None
    if args.action == "run" and args.stages is not None:
        only = [name.strip() for name in args.stages.split(",")]
    results: list[dict[str, Any]] = []
    failures = 0
    for plan in plans:
        name = plan.regression.name
        print(f"{name} in {plan.place.work}", file=sys.stderr)
        try:
            if args.action == "run":
                result = runner.run(plan, only=only, force=args.force)
            else:
                result = runner.verify(plan)
        except StageError as error:  # this regression only
            failures += 1
            print(f"error: {one_line(error)}", file=sys.stderr)
            results.append({"name": name, "verdict": None, "exit_code": error.exit_code, "error": one_line(error)})
            continue
        results.append(result)
        if not args.json and result["verdict"] is not None:
            where = f"; result: {plan.layout.result}" if plan.layout.result.exists() else ""
            print(f"\n{_table(result)}\n{name}: {result['verdict']}{where}")
    if args.json:
        print(json.dumps(results if len(plans) > 1 else results[0], indent=1))
    return runner.status_of(results, failures)


def _table(result: Mapping[str, Any]) -> str:
    """Return the figures of a result as a table, its problems and notes below."""
    rows = [["", "published", "expected", "tolerance", "found", "difference", "verdict"]]
    for row in result["rows"]:
        digits = 0 if row["kind"] == "count" else 4
        tolerance = "-" if row["tolerance"] is None else f"{row['tolerance']:,g}"
        figures = [number(row[key], digits) for key in ("published", "expected", "found", "difference")]
        rows.append([row["name"].replace("_", " "), *figures[:2], tolerance, *figures[2:], row["verdict"]])
    values = {row["name"]: row["found"] for row in result["rows"]}
    return "\n".join([
        aligned(rows),
        *(
            f"{name} is {value:.4f} for a reader of the rank column, {values[name]:.4f} for trec_eval: scores tie, and "
            f"the two order ties differently"
            for name, value in result["by_rank"].items()
        ),
        *(f"problem: {line}" for line in result["problems"]),
        *(f"note: {line}" for line in result["notes"]),
    ])  # fmt: skip
