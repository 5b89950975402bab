"""Pages out of regressions/: one for each file of models, and an overview. ``regress pages`` writes them, never a person.

A page has what the YAML says (its opening comment, published and measured figures) and every command that makes the
figures, from the same argument lists that ``regress run`` executes. Models of a family whose commands differ in names
alone share one list of commands, with a table of what to put in.
"""

import dataclasses
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from pyserini_rescale.files import write_text
from pyserini_rescale.regression.catalogue import Catalogue
from pyserini_rescale.regression.planning import Options, plan, steps_of
from pyserini_rescale.regression.spec import CollectionSpec, Figure, Regression

OVERVIEW = "README.md"
_CACHE = "/CACHE"  # stands for a folder that each reader has elsewhere
_MODEL, _CONFIG = "@MODEL@", "@CONFIG@"  # characters that need no quotes in a shell
_NOTICE = "Written by `python -m pyserini_rescale regress pages` out of [regressions/](../../regressions); change that, not this."


def pages(catalogue: Catalogue) -> dict[str, str]:
    """Return file name -> text of all pages."""
    by_file: dict[str, list[str]] = {}
    for model, file in catalogue.files.items():
        by_file.setdefault(file, []).append(model)
    made = {OVERVIEW: _overview(catalogue, by_file)}
    for file, models in by_file.items():
        made[f"{Path(file).stem}.md"] = _page(catalogue, file, models)
    return made


def write(made: Mapping[str, str], folder: Path) -> None:
    """Write the pages; other files of the folder stay."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in made.items():
        write_text(folder / name, text)


def differences(made: Mapping[str, str], folder: Path) -> list[str]:
    """Return a line for each page that is not there, is not what it would be, or is no longer made."""
    lines = []
    for name, text in made.items():
        path = folder / name
        if not path.is_file():
            lines.append(f"{path} is missing")
        elif path.read_bytes() != text.encode("utf-8"):  # bytes: what somebody made of it may be no UTF-8
            lines.append(f"{path} is out of date")
    extra = sorted(path for path in folder.glob("*.md") if path.name not in made)
    return [*lines, *(f"{path} belongs to no file of models" for path in extra)]


# One page


def _page(catalogue: Catalogue, file: str, models: list[str]) -> str:
    whole = [one for one in catalogue.regressions.values() if one.model.name in models and not one.is_part]
    by_model: dict[str, list[Regression]] = {}
    for one in whole:
        by_model.setdefault(one.model.name, []).append(one)
    example = models[0] if len(by_model.get(models[0], ())) > 1 else (whole[0].name if whole else models[0])
    run = f"    python -m pyserini_rescale regress run {example}"
    return "\n".join([
        f"# {Path(file).stem}\n",
        f"{_NOTICE}\n",
        _opening_comment(catalogue.folder / file),
        f"{run}\n\nruns what follows, for one of them, and compares. `regress plan` prints the commands instead.\n",
        *_figures(by_model),
        *_made_with(whole),
        *_commands(by_model),
        *_your_own(file),
    ])  # fmt: skip


def _opening_comment(path: Path) -> str:
    """Return the comment that a YAML file begins with, as paragraphs."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    paragraphs = "\n".join(lines).split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs) + "\n"


def _figures(by_model: Mapping[str, list[Regression]]) -> list[str]:
    """Return a table of every figure that was published or measured, and what has none yet."""
    rows, without = [], []
    for model, regressions in by_model.items():
        figures: list[tuple[str, str, Figure]] = [
            ("its head", name, figure) for name, figure in regressions[0].model.head.items()
        ]
        for one in regressions:
            expected = one.expected
            for table in (expected.measures, expected.counts, expected.sparsity, expected.training):
                figures += [(one.collection.name, name, figure) for name, figure in table.items()]
            if not any(figure.reference is not None for figure in expected.measures.values()):
                without.append(one.name)
        rows += [_row(model, *figure) for figure in figures if figure[2].reference is not None]
    head = ["| model | on | figure | published | measured | bound |", "|---|---|---|---:|---:|---:|"]
    lines = ["## Figures\n", *(head if rows else []), *rows, ""]
    return [*lines, f"Nothing published or measured yet: {', '.join(without)}.\n"] if without else lines


def _row(model: str, on: str, name: str, figure: Figure) -> str:
    bound = f"at most {figure.at_most:,g}" if figure.at_most is not None else f"± {figure.tolerance:,g}"
    shown = ["-" if value is None else _shown(value) for value in (figure.published, figure.measured)]
    return f"| {model} | {on} | {name.replace('_', ' ')} | {' | '.join(shown)} | {bound} |"


def _shown(value: float) -> str:
    """Return a figure with three digits after the point, or four where it has them; a count as it is."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.3f}" if abs(round(value, 3) - value) < 1e-9 else f"{value:,.4f}"


def _made_with(regressions: Iterable[Regression]) -> list[str]:
    """Return how the measured figures were made, those of equal words once."""
    notes: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for one in regressions:
        if one.expected.measured_with:
            notes.setdefault(tuple(one.expected.measured_with.items()), []).append(one.name)
    lines = []
    for how, names in notes.items():
        lines += [f"Measured, {', '.join(names)}:\n", *(f"- {key}: {value}" for key, value in how), ""]
    return lines


def _commands(by_model: Mapping[str, list[Regression]]) -> list[str]:
    """Return the commands by hand, once for all models whose commands differ in names alone."""
    groups: dict[str, list[str]] = {}
    values: dict[str, str] = {}
    for model, regressions in by_model.items():
        text, values[model] = _script(regressions)
        groups.setdefault(text, []).append(model)
    lines = ["## By hand\n"]
    for text, models in groups.items():
        if len(models) == 1:
            lines.append(f"{models[0]}:\n")
            lines.append(_block(text.replace(_MODEL, models[0]).replace(_CONFIG, values[models[0]])))
            continue
        lines += ["| MODEL | CONFIG |", "|---|---|", *(f"| {model} | `{values[model]}` |" for model in models), ""]
        first = [f"MODEL={models[0]}", f"CONFIG={shlex.quote(values[models[0]])}"]
        lines.append(_block("\n".join([*first, text.replace(_MODEL, "$MODEL").replace(_CONFIG, "$CONFIG")])))
    return lines


def _block(text: str) -> str:
    return f"```bash\n{text.replace(_CACHE, '$HOME/.cache')}\n```\n"


def _script(regressions: list[Regression]) -> tuple[str, str]:
    """Return the commands of a model's regressions, model and configuration replaced by marks, and the configuration."""
    model = regressions[0].model
    config = ""
    lines: list[str] = []
    work = None
    plans = [plan(_with_source(one), Options(), {"XDG_CACHE_HOME": _CACHE}) for one in regressions]
    for step in steps_of(plans):
        if step.place.work != work:
            work = step.place.work
            lines.append(f"\n# {_marked(str(work), model.name)}")
        argv = [_marked(token, model.name) for token in step.stage.argv]
        if "--config" in argv:
            start = argv.index("--config") + 1
            end = start + 1
            if argv[end : end + 1] == ["--set"] and model.training is not None:
                end += 1 + len(model.training.set)
            config = shlex.join(step.stage.argv[start:end])
            argv[start:end] = [_CONFIG]
        lines.append(shlex.join(argv))
    return "\n".join(lines).lstrip("\n"), config


def _with_source(regression: Regression) -> Regression:
    """Return a regression whose collections without an id of ir_datasets are named as a folder that a reader has."""

    def named(spec: CollectionSpec) -> CollectionSpec:
        if spec.ir_datasets or spec.builtin or spec.mean_of:
            return spec
        return spec.model_copy(update={"ir_datasets": f"DATA/{spec.folder}"})

    return dataclasses.replace(
        regression,
        collection=named(regression.collection),
        lessons=None if regression.lessons is None else named(regression.lessons),
        parts=tuple(map(_with_source, regression.parts)),
    )


def _marked(token: str, model: str) -> str:
    """Return a word of a command with the model's name, where it names a folder, replaced by a mark."""
    parts = token.split("/")
    for place, part in enumerate(parts):
        if part == model or part.endswith(f".{model}"):
            parts[place] = part[: len(part) - len(model)] + _MODEL
    return "/".join(parts)


def _your_own(file: str) -> list[str]:
    return [
        "## Your own result\n",
        "Run it; the last lines show what was found, and result.json in the work folder has versions, commit, machine and",
        "fingerprints beside it. Write the figures as `measured` beside `published`, with the tolerance that you can account",
        f"for and a `measured_with`, into [regressions/{file}](../../regressions/{file}), run `regress pages`, and send both.",
        "",
    ]


# The overview


def _overview(catalogue: Catalogue, by_file: Mapping[str, list[str]]) -> str:
    lines = ["# Regressions\n", f"{_NOTICE}\n"]
    lines += ["| models | how many | on |", "|---|---:|---|"]
    for file, models in by_file.items():
        on = dict.fromkeys(
            one.collection.name
            for one in catalogue.regressions.values()
            if one.model.name in models and not one.is_part
        )
        lines.append(f"| [{Path(file).stem}]({Path(file).stem}.md) | {len(models)} | {', '.join(on)} |")
    lines += ["", "`regress run --suite SUITE`, and `report`, `plan` and `verify` alike, take these lists:\n"]
    lines += ["| suite | regressions | |", "|---|---:|---|"]
    for name, suite in catalogue.suites.items():
        lines.append(f"| {name} | {len(catalogue.choose([], name))} | {suite.description} |")
    lines += ["", "Collections:\n", "| collection | documents | queries | source | |", "|---|---:|---:|---|---|"]
    seen: dict[str, CollectionSpec] = {}
    for one in catalogue.regressions.values():
        seen.setdefault(one.collection.name, one.collection)
    lines += [_collection_row(spec) for _, spec in sorted(seen.items())]
    hints = {spec.by_hand: None for spec in seen.values() if spec.by_hand}
    if hints:
        lines += ["", "Where a file must be fetched by hand:\n", *(f"- {' '.join(hint.split())}" for hint in hints)]
    lines += [
        "",
        "Exit status: 0 all figures OK, 1 a figure or check FAILs (higher than expected is a FAIL too), 2 a bad option or YAML,",
        "3 a stage failed, 4 nothing FAILs but a figure is MISSING.",
        "",
    ]
    return "\n".join(lines)


def _collection_row(spec: CollectionSpec) -> str:
    folder = spec.folder and f"folder {spec.folder}/"
    mean = f"mean over {len(spec.mean_of)}" if spec.mean_of else None
    sources = [part for part in (spec.ir_datasets, folder, spec.builtin, mean) if part]
    numbers = ["" if value is None else f"{value:,}" for value in (spec.documents, spec.queries)]
    text = " ".join(spec.description.split())
    return f"| {spec.name} | {' | '.join(numbers)} | {', '.join(sources)} | {text} |"
