"""``regress``: list, show, plan, run and verify regressions; what many results say together is regress_report.py's."""

import argparse
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyserini_rescale import yaml_files
from pyserini_rescale.cli import regress_report
from pyserini_rescale.cli.tables import aligned, number
from pyserini_rescale.errors import ConfigError
from pyserini_rescale.regression import catalogue, planning, runner, spec
from pyserini_rescale.regression.stages import shell_form, why_stale

HELP = "Regressions: one model on one collection, from YAML to training, encode, index, search and a verdict."
EXAMPLES = """\
  python -m pyserini_rescale regress list --suite ci
  python -m pyserini_rescale regress show scifact.splade-tiny
  python -m pyserini_rescale regress plan modernbert-base.k16
  python -m pyserini_rescale regress run scifact.splade-tiny --data ~/beir --models ~/models --threads 8 --device cuda:0
  python -m pyserini_rescale regress run --suite table2 --resume
  python -m pyserini_rescale regress run scifact.splade-tiny --stages search,verify --force
  python -m pyserini_rescale regress verify scifact.splade-tiny --json
  python -m pyserini_rescale regress report --suite table2 --format markdown
  python -m pyserini_rescale regress compare A/run.txt B/run.txt --qrels A/collection/qrels.txt
  python -m pyserini_rescale regress figure 3 --output figure3.png
  python -m pyserini_rescale regress pages --check

NAME is COLLECTION.MODEL, a MODEL (on all its collections) or a pattern such as 'dl19.*'.

Data and models: --data DIR contains scifact/, --models DIR contains splade-tiny/; or PYSERINI_RESCALE_DATA and
PYSERINI_RESCALE_MODELS say so. What they do not contain comes through ir_datasets, a model from the package or Hub that
its YAML names.

exit status: 0 all figures OK, 1 a figure or check FAILs (higher than expected is a FAIL too), 2 bad option or YAML,
3 a stage failed, 4 nothing FAILs but a figure is MISSING.
"""

_GIB = 2**30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(
        dest="action", required=True, metavar="list|show|plan|run|verify|report|compare|figure|pages"
    )
    every = argparse.ArgumentParser(add_help=False)
    every.add_argument(
        "--specs", type=Path, metavar="DIR", help="folder with collections/ and models/ in place of ours"
    )
    as_json = argparse.ArgumentParser(add_help=False)
    as_json.add_argument("--json", action="store_true", help="print JSON; progress still goes to stderr")
    chosen = argparse.ArgumentParser(add_help=False)
    chosen.add_argument("names", nargs="*", metavar="NAME", help="COLLECTION.MODEL, a MODEL, or a pattern")
    chosen.add_argument("--suite", metavar="S", help="the regressions of a suite: `regress list` names them")
    places = argparse.ArgumentParser(add_help=False)
    places.add_argument("--data", type=Path, metavar="DIR", help="folder that contains the collections' folders")
    places.add_argument("--models", type=Path, metavar="DIR", help="folder that contains the models' folders")
    places.add_argument(
        "--work", type=Path, metavar="DIR",
        help="folder of the results (default: runs): the regression's own, or that of NAME/ where there are several",
    )  # fmt: skip
    places.add_argument("--device", default="cpu", help="device for encoding documents (default: %(default)s)")
    places.add_argument(
        "--threads", type=int, default=os.cpu_count() or 1, help="indexing threads (default: %(default)s)"
    )
    described: dict[str, Any] = {
        "formatter_class": argparse.RawDescriptionHelpFormatter,
        "epilog": "examples:\n" + EXAMPLES,
    }
    listing = actions.add_parser("list", parents=[every, as_json], help="all regressions, or a suite's", **described)
    listing.add_argument("--suite", metavar="S", help="only those of a suite")
    for name, text in (
        ("show", "what a regression expects, and its commands"),
        ("plan", "what would run, what is up to date, and about how much disk it takes; nothing is fetched or run"),
        ("run", "run the stages that are not up to date, then verify"),
        ("verify", "judge what the work folder holds, wherever it was made"),
    ):
        action = actions.add_parser(
            name, parents=[every, as_json, chosen, places], help=text, description=text, **described
        )
        if name == "run":
            action.add_argument("--dry-run", action="store_true", help="the same as plan")
            action.add_argument("--stages", metavar="A,B", help="only these stages (verify is one)")
            action.add_argument(
                "--resume", action="store_true", help="let an interrupted training go on from its last checkpoint"
            )
            action.add_argument("--force", action="store_true", help="run stages that are up to date, too")
    regress_report.add_actions(actions, every, chosen, places, described)


def run(args: argparse.Namespace) -> int:
    if args.action == "compare":
        return regress_report.compare(args)
    found = catalogue.load(args.specs or yaml_files.default_folder())
    if args.action == "list":
        return _list(found, args)
    if args.action == "pages":
        return regress_report.pages(found, args)
    if args.action == "figure":
        return regress_report.figure(found, plans_of, args)
    plans = plans_of(found, args)
    if args.action == "report":
        return regress_report.report(plans, args)
    if args.action == "show":
        return _show(plans, args.json)
    if args.action == "plan" or (args.action == "run" and args.dry_run):
        return _plan(plans, args.json)
    return _judge(plans, args)


def plans_of(found: catalogue.Catalogue, args: argparse.Namespace) -> list[runner.Plan]:
    """Return the plans of what was named; ConfigError where nothing was."""
    if not args.names and args.suite is None:
        raise ConfigError("name regressions, a model or --suite S: `regress list` shows all")
    if args.threads < 1:
        raise ConfigError(f"--threads {args.threads}: 1 or more is needed")
    chosen = found.choose(args.names, args.suite)
    work = args.work if len(chosen) == 1 else None
    options = runner.Options(args.data, args.models, work, args.device, args.threads, args.work)
    return [runner.plan(regression, options) for regression in chosen]


def _list(found: catalogue.Catalogue, args: argparse.Namespace) -> int:
    regressions = [one for one in found.regressions.values() if not one.is_part]
    if args.suite is not None:
        regressions = found.choose([], args.suite)
    if args.json:
        print(json.dumps([{"name": one.name, **_spec(one)} for one in regressions], indent=1))
        return 0
    width = max((len(one.name) for one in regressions), default=0)
    for one in regressions:
        figures = one.expected.measures.items()
        known = ", ".join(
            f"{measure} {figure.reference:.4f}{'' if figure.measured is not None else ' published'}"
            for measure, figure in figures
            if figure.reference is not None
        )
        print(f"{one.name:<{width}}  {known or 'nothing measured yet'}")
    if args.suite is None and found.suites:
        print("\nsuites:")
        for name, suite in found.suites.items():
            print(f"{name:<{width}}  {len(found.choose([], name))} regressions: {suite.description}")
    return 0


def _spec(regression: spec.Regression) -> dict[str, Any]:
    return {
        "collection": regression.collection.model_dump(exclude_none=True, exclude_defaults=True),
        "model": regression.model.model_dump(exclude={"expected"}, exclude_none=True),
        "expected": regression.expected.model_dump(exclude_none=True),
    }


def _show(plans: list[runner.Plan], as_json: bool) -> int:
    shown = [
        {
            "name": plan.regression.name,
            **_spec(plan.regression),
            "places": {"collection": plan.source, "model": plan.model, "work": str(plan.place.work)},
            "parts": [part.regression.name for part in plan.parts],
            "commands": [shell_form(step.stage.argv) for step in planning.steps_of([plan])],
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


def _plan(plans: list[runner.Plan], as_json: bool) -> int:
    """Print every stage once, under the folder it runs in."""
    shown: list[dict[str, Any]] = []
    stale: dict[Path, str] = {}  # outputs that will be made anew -> by which stage
    for step in planning.steps_of(plans):
        stage = step.stage
        after = next((stale[made] for path in stage.inputs for made in (path, *path.parents) if made in stale), None)
        reason = why_stale(stage, step.place) or (f"after {after}" if after else None)
        if reason:
            stale[stage.output] = stage.name
        shown.append(
            {"work": str(step.place.work), "stage": stage.name, "would_run": reason, "command": list(stage.argv)}
        )
    sizes = {plan.regression.name: planning.rough_bytes(plan.regression) for plan in plans}
    if as_json:
        print(json.dumps({"stages": shown, "rough_bytes": sizes}, indent=1))
        return 0
    work: str | None = None
    for entry in shown:
        if entry["work"] != work:
            work = entry["work"]
            print(f"# in {work}")
        reason = entry["would_run"]
        print(
            f"# {entry['stage']}: {f'would run ({reason})' if reason else 'up to date'}\n{shell_form(entry['command'])}\n"
        )
    running = sum(entry["would_run"] is not None for entry in shown)
    print(f"# {len(shown)} stages, {running} would run")
    for name, size in sizes.items():
        print(f"# {name}: about {max(size / _GIB, 0.1):,.1f} GiB" if size else f"# {name}: of unknown size")
    print("# (collections, vectors, indexes and runs, roughly; models and what a source caches come on top)")
    return 0


def _judge(plans: list[runner.Plan], args: argparse.Namespace) -> int:
    session = None
    if args.action == "run":
        only = None if args.stages is None else [name.strip() for name in args.stages.split(",")]
        session = runner.Session(only, args.force, args.resume)
    results = []
    for result in runner.run_all(plans, session):
        results.append(result)
        if not args.json and result["verdict"] is not None:
            print(f"\n{_table(result)}\n{result['name']}: {result['verdict']}", flush=True)
    if args.json:
        print(json.dumps(results if len(results) > 1 else results[0], indent=1))
    return runner.status_of(results)


def _table(result: Mapping[str, Any]) -> str:
    """Return the figures of a result as a table, its problems and notes below."""
    rows = [["", "published", "expected", "tolerance", "found", "difference", "verdict"]]
    for row in result["rows"]:
        digits = 0 if row["kind"] == "count" else 4
        tolerance = "-" if row["tolerance"] is None else f"{row['tolerance']:,g}"
        tolerance = tolerance if row["at_most"] is None else f"at most {row['at_most']:,g}"
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
