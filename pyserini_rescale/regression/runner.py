"""Running and judging: ``run`` executes the stages of a plan that are not up to date and verifies, ``verify`` judges what
is there already. Both return the result that is written to result.json.
"""

import contextlib
import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from pyserini_rescale.errors import ConfigError, ModelError, StageError, one_line
from pyserini_rescale.model.policy import read_policy
from pyserini_rescale.regression import stages as stage_module
from pyserini_rescale.regression.empty_run import has_no_terms
from pyserini_rescale.regression.planning import (
    VERIFY,
    WEIGHTS,
    Options,
    Plan,
    Step,
    empty_search_stage,
    encode_stage,
    index_stage,
    plan,
    search_stage,
    statistics_stage,
    weights_of,
)
from pyserini_rescale.regression.verify import EXIT_CODES, FAIL, MISSING, Findings, compare, examine, mean_of, overall
from pyserini_rescale.train.folder import locked

__all__ = [
    "Options", "Plan", "Step", "encode_stage", "index_stage", "plan", "run", "run_all", "search_stage",
    "statistics_stage", "status_of", "verify",
]  # fmt: skip

_NEED_WEIGHTS = ("train", "encode", "search", "queries")
_RUN_AGAIN = ("statistics", "queries")  # by verify, where their record or output is not up to date


@dataclasses.dataclass
class Session:
    """What one call of the command remembers: stages that failed, which are not tried again for another regression that
    shares them, whether the start-up hook is active, and the options of ``run``."""

    only: list[str] | None = None
    force: bool = False
    resume: bool = False
    show: TextIO = dataclasses.field(default_factory=lambda: sys.stderr)
    hook: bool = dataclasses.field(default_factory=stage_module.hook_is_active)
    failed: dict[tuple[Path, str], StageError] = dataclasses.field(default_factory=dict)
    done: set[tuple[Path, str]] = dataclasses.field(default_factory=set)


def run(plan: Plan, session: Session | None = None) -> dict[str, Any]:
    """Run the stages (those in ``session.only``, else all) and verify; return the result.

    A head that is not the paper's, or an index that does not hold what the vectors do, stops the run: verdict FAIL. Raises
    StageError, ConfigError for unknown stage names, ModelError for weights that are not the ones the regression is about.
    """
    session = session or Session()
    chosen = _chosen(plan, session.only)
    with contextlib.ExitStack() as stack:
        for folder in sorted({step.place.work for step in chosen}):  # sorted: two that share some wait for none
            stack.enter_context(locked(folder, "--work", "running stages"))
        return _run(plan, chosen, session)


def _run(plan: Plan, chosen: list[Step], session: Session) -> dict[str, Any]:
    for step in chosen:
        step = current(plan, step)
        if step.stage.name in _NEED_WEIGHTS:
            check_weights(plan)
        _run_step(plan, step, session)
        if _gate(plan, step.stage.name, session.show):
            break
    if session.only is not None and VERIFY not in session.only:
        return {"name": plan.regression.name, "verdict": None, "exit_code": 0, "stages": _stage_records(plan)}
    return _judge(plan, examine(now(plan)))


def run_all(plans: list[Plan], session: Session | None) -> Iterator[dict[str, Any]]:
    """Run plans one after the other, the parts of a mean before it; without a session, verify them. Yields the results.

    A failed stage stops its own model only: its result has the error in place of a verdict.
    """
    results: dict[str, dict[str, Any]] = {}
    for one in _with_parts(plans):
        name = one.regression.name
        print(f"{name} in {one.place.work}", file=sys.stderr)
        try:
            if one.parts:
                result = _judge_mean(one, [results[part.regression.name] for part in one.parts], session)
            else:
                result = verify(one) if session is None else run(one, session)
        except StageError as error:
            print(f"error: {one_line(error)}", file=sys.stderr)
            result = {"name": name, "verdict": None, "exit_code": error.exit_code, "error": one_line(error)}
        results[name] = result
        yield result


def verify(plan: Plan, show: TextIO | None = None) -> dict[str, Any]:
    """Judge what the folders hold. No document is encoded and nothing searched; the index is counted again, and the run
    held against the vectors again, if need be."""
    session = Session(show=show or sys.stderr, hook=True)
    notes = []
    for step in plan.steps:
        stage = step.stage
        by_hand = stage.output.exists() and not stage_module.read_record(step.place, stage.name)
        if stage.name in _RUN_AGAIN and not by_hand and all(path.exists() for path in stage.inputs):
            try:
                _run_step(plan, step, session)
            except StageError as error:
                notes.append(f"not checked: {one_line(error)}")
    found = examine(now(plan))
    found.notes += notes
    return _judge(plan, found)


def current(plan: Plan, step: Step) -> Step:
    """Return a step as it stands now: the search of an index without a term is an empty run."""
    if step.stage.name == "search" and has_no_terms(plan.layout.statistics):
        return Step(step.place, empty_search_stage(plan.layout.statistics, plan.layout.run))
    return step


def now(plan: Plan) -> Plan:
    """Return a plan with its steps as they stand now."""
    return dataclasses.replace(plan, steps=tuple(current(plan, step) for step in plan.steps))


def _with_parts(plans: list[Plan]) -> list[Plan]:
    """Return plans with the parts of means before them, each once."""
    found: dict[str, Plan] = {}
    for whole in plans:
        for each in (*whole.parts, whole):
            found.setdefault(each.regression.name, each)
    return list(found.values())


def _run_step(plan: Plan, step: Step, session: Session) -> None:
    stage, place = step.stage, step.place
    key = (place.work, stage.name)
    if key in session.failed:
        raise session.failed[key]
    if not session.hook and stage.argv[2].startswith("pyserini."):
        print(
            "the start-up hook is not active: `pyserini_rescale run` is put before Pyserini's modules",
            file=session.show,
        )
    # What regressions share is made once, also when everything is forced.
    force = session.force and key not in session.done
    try:
        stage_module.run_stage(stage, place, force=force, resume=session.resume, hook=session.hook, show=session.show)
    except StageError as error:
        by_hand = plan.regression.collection.by_hand
        if stage.name == "collection" and by_hand:
            error = StageError(f"{one_line(error)}; by hand: {by_hand}")
        session.failed[key] = error
        raise error from None
    session.done.add(key)


def _chosen(plan: Plan, only: list[str] | None) -> list[Step]:
    if only is None:
        return list(plan.steps)
    known = plan.stage_names()
    unknown = [name for name in only if name not in known]
    if unknown:
        raise ConfigError(f"no stage is called {', '.join(unknown)}: the stages are {', '.join(known)}")
    return [step for step in plan.steps if step.stage.name in only]


def check_weights(plan: Plan) -> None:
    """Raise ModelError unless the model's weights are those whose checksum the YAML gives."""
    spec = plan.regression.base or plan.regression.model
    if spec.weights is None or plan.origin is None or not Path(plan.origin).is_dir():
        return
    file = Path(plan.origin, WEIGHTS)
    found = weights_of(file.parent)
    if found != spec.weights:
        state = f"has SHA-256 {found}" if found else "cannot be read" if file.exists() else "is not there"
        raise ModelError(
            f"{file} {state}, the regression is about {spec.weights}: give the folder that holds that model by --models"
        )


def _gate(plan: Plan, stage: str, show: TextIO) -> bool:
    """Whether what a stage found forbids to go on; if so, say it."""
    problems: list[str] = []
    if stage == "statistics":
        try:
            problems = json.loads(plan.layout.statistics.read_text(encoding="utf-8"))["problems"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return False  # changed by hand; verify says so
    elif stage == "head":
        rows = compare(plan.regression, examine(plan))
        problems = [
            f"{row.name.replace('_', ' ')} is {row.found:.3f}, {row.expected:g} is expected"
            for row in rows
            if row.kind == "head" and row.verdict == FAIL
        ]
    if problems:
        following = {"head": "train", "statistics": "search"}[stage]
        print(f"{following:<12} not run: {'; '.join(problems)}", file=show)
    return bool(problems)


def _judge_mean(plan: Plan, parts: list[dict[str, Any]], session: Session | None) -> dict[str, Any]:
    failed = [result["name"] for result in parts if "error" in result]
    if failed:
        raise StageError(f"{plan.regression.name}: no mean, a stage failed in {', '.join(failed)}")
    if session is not None and session.only is not None and VERIFY not in session.only:
        return {"name": plan.regression.name, "verdict": None, "exit_code": 0, "stages": []}
    return _judge(plan, mean_of(plan, parts))


def _judge(plan: Plan, found: Findings) -> dict[str, Any]:
    regression = plan.regression
    rows = compare(regression, found)
    state = overall(rows, found.problems)
    result = {
        "name": regression.name,
        "verdict": state,
        "exit_code": EXIT_CODES[state],
        "rows": [{**dataclasses.asdict(row), "difference": row.difference} for row in rows],
        "by_rank": found.by_rank,
        "problems": found.problems,
        "notes": [*found.other_data, *found.notes],
        "found": {kind: getattr(found, kind) for kind in ("measures", "counts", "sparsity", "training", "head")},
        "statistics": found.statistics,
        "collection": plan.source,
        "model": plan.model,
        "policy": _policy(plan.model),
        "weights": weights_of(Path(plan.model)) if Path(plan.model).is_dir() else None,
        "parts": [part.regression.name for part in plan.parts],
        "stages": _stage_records(plan),
        **stage_module.environment(),
    }
    # A mean has no folder until there is something to say; a regression, until something lies in it.
    if plan.place.work.is_dir() or (plan.parts and found.measures):
        plan.place.work.mkdir(parents=True, exist_ok=True)
        stage_module.write_json(plan.layout.result, result)
    return result


def _policy(model: str) -> dict[str, Any] | None:
    if not Path(model).is_dir():
        return None
    policy = read_policy(model)
    return None if policy is None else policy.to_dict()


def _stage_records(plan: Plan) -> list[dict[str, Any]]:
    kept = ("stage", "command", "fingerprint", "started", "seconds", "versions", "device")
    records = (stage_module.read_record(step.place, step.stage.name) for step in plan.steps)
    return [{key: record.get(key) for key in kept} for record in records if record]


def status_of(results: Sequence[Mapping[str, Any]]) -> int:
    """Return the exit status for several regressions: 3 if a stage failed, else 1 for any FAIL, else 4, else 0."""
    codes = {result["exit_code"] for result in results}
    order = (StageError.exit_code, EXIT_CODES[FAIL], EXIT_CODES[MISSING])
    return next((code for code in order if code in codes), 0)
