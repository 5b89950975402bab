"""Writes the parts of docs/ that say what the code says: docs/yaml.md, docs/files.md, the list of patches in docs/plugin.md.

    python scripts/reference.py            # write
    python scripts/reference.py --check    # write nothing; exit status 1 if something is out of date

Keys, types and defaults come from the pydantic models, what a key means from the docstring of its class: "key: meaning.",
at the start of a line or behind a full stop; "one, other: meaning." for two. What belongs to no key is the section's own
text. A key without a meaning is an error. The patches come from the tables of plugin/patches.py, with their docstrings, and what a
file is comes from its first words.
"""

import argparse
import ast
import inspect
import itertools
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pydantic

from pyserini_rescale.errors import ConfigError, reported
from pyserini_rescale.files import write_text
from pyserini_rescale.plugin import java, patches
from pyserini_rescale.regression import catalogue, spec
from pyserini_rescale.train import config

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
NOTICE = "Written by `python scripts/reference.py` out of {}; change that, not this."
START, END = "<!-- patches: written by scripts/reference.py -->", "<!-- end of patches -->"
COMPARISONS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


# ---- Meanings, out of docstrings ---------------------------------------------------------------------------------------


def meanings(model: type[pydantic.BaseModel]) -> tuple[str, dict[str, str]]:
    """Return (what a section is, key -> what it means); raises ConfigError for a key that its docstring leaves out.

    A key that is a section itself needs no words here: its class has them.
    """
    names = "|".join(model.model_fields)
    start = re.compile(rf"(?:^|(?<=[.] ))({names})((?:, (?:{names}))*):\s", re.MULTILINE)
    about, found = [], {}
    for paragraph in inspect.cleandoc(model.__doc__ or "").split("\n\n"):
        places = list(start.finditer(paragraph))
        before = paragraph[: places[0].start()] if places else paragraph
        if before.strip():
            about.append(_flat(before))
        ends = [*(place.start() for place in places[1:]), len(paragraph)]
        for place, end in zip(places, ends, strict=False):
            text = _flat(paragraph[place.end() : end])
            for name in [place[1], *place[2].split(", ")[1:]]:
                found[name] = text
    lacking = [
        name for name, field in model.model_fields.items() if name not in found and not sections(field.annotation)
    ]
    if lacking:
        raise ConfigError(f"{model.__module__}.{model.__name__} does not say what {', '.join(lacking)} means")
    return ". ".join(about), found


def sections(annotation: Any) -> list[type[pydantic.BaseModel]]:
    """Return the sections (our models) that an annotation holds."""
    if inspect.isclass(annotation) and issubclass(annotation, pydantic.BaseModel):
        return [annotation]
    return [one for part in getattr(annotation, "__args__", ()) for one in sections(part)]


def _flat(text: str) -> str:
    return " ".join(text.split()).replace("``", "`").removesuffix(".").replace("|", "\\|")


# ---- Types and defaults, out of the JSON schema ------------------------------------------------------------------------


def type_of(schema: dict[str, Any]) -> str:
    """Return a type in words: what YAML may hold there."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(type_of(one) for one in schema["anyOf"]))
    if "$ref" in schema:
        return "table"
    if "allOf" in schema:
        return type_of(schema["allOf"][0])
    if "enum" in schema or "const" in schema:
        return " or ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type")
    if kind == "array":
        return f"list of {type_of(schema['items'])}s"
    if kind == "object":
        inner = schema.get("additionalProperties")
        keys = schema.get("propertyNames", {}).get("enum")
        of = f" of {', '.join(f'`{key}`' for key in keys)}" if keys else ""
        return f"table{of}" + (f", each {type_of(inner)}" if isinstance(inner, dict) and "$ref" not in inner else "")
    words = {"integer": "integer", "number": "number", "boolean": "true or false", "string": "text", "null": "null"}
    limits = [f"{sign} {_number(schema[name])}" for name, sign in COMPARISONS.items() if name in schema]
    return " ".join([words[kind], ", ".join(limits)]).strip()


def _number(limit: float) -> str:
    return f"{int(limit):,}" if limit == int(limit) else f"{limit:g}"


def value(given: Any) -> str:
    """Return a value as one writes it into YAML."""
    return f"`{json.dumps(given)}`" if not isinstance(given, str) else f"`{given}`"


def rows(model: type[pydantic.BaseModel], paper: dict[str, Any] | None = None) -> Iterator[str]:
    """Yield the table of a section; ``paper``: what regressions/training/paper.yaml has there, for a column of its own."""
    _, found = meanings(model)
    columns = ["key", "type", "default", *([] if paper is None else ["paper.yaml"]), "meaning"]
    yield f"| {' | '.join(columns)} |"
    yield "|" + "---|" * len(columns)
    for name, schema in model.model_json_schema()["properties"].items():
        inner = sections(model.model_fields[name].annotation)
        text = found.get(name, "")
        if inner:
            text = ": ".join(filter(None, [text, f"see [{inner[0].__name__}](#{inner[0].__name__.lower()})"]))
        default = "none" if name in model.model_json_schema().get("required", []) else _default(schema)
        of_paper = [] if paper is None else ["" if inner else value(paper[name]) if name in paper else ""]
        yield f"| {' | '.join([f'`{name}`', type_of(schema).replace('|', chr(92) + '|'), default, *of_paper, text])} |"


def _default(schema: dict[str, Any]) -> str:
    return (
        "as in its section"
        if isinstance(schema.get("default"), dict) and schema["default"]
        else value(schema.get("default"))
    )


# ---- docs/yaml.md ------------------------------------------------------------------------------------------------------


def _doc(module: Any) -> str:
    """Return a module's docstring without its first line."""
    return inspect.getdoc(module).split("\n\n", 1)[1].replace("``", "`")


def _section(model: type[pydantic.BaseModel], paper: dict[str, Any] | None = None) -> list[str]:
    about, _ = meanings(model)
    return [f"### {model.__name__}\n", f"{about}.\n", *rows(model, paper), ""]


def _tree(
    model: type[pydantic.BaseModel], paper: dict[str, Any] | None = None, seen: set[type] | None = None
) -> Iterator[str]:
    """Yield a section and, behind it, those that it holds, each once."""
    seen = {model} if seen is None else seen
    yield from _section(model, paper)
    for name, field in model.model_fields.items():
        for inner in sections(field.annotation):
            if inner not in seen:
                seen.add(inner)
                yield from _tree(inner, None if paper is None else paper.get(name, {}), seen)


def yaml_page() -> str:
    """Return docs/yaml.md."""
    where = "the classes in [train/config.py](../pyserini_rescale/train/config.py) and "
    where += "[regression/spec.py](../pyserini_rescale/regression/spec.py)"
    paper, _ = config.read_raw("paper")
    return "\n".join([
        "# Keys of the YAML files\n",
        f"{NOTICE.format(where)}\n",
        "Default `none`: it has to be said, in the file or one that it extends, unless the meaning says what stands for it. A key",
        "that is not listed is refused, and all faults of a file are reported together.\n",
        "## Training configurations\n",
        f"`train --config FILE`; the shipped ones are in [regressions/training](../regressions/training).\n\n{_doc(config)}\n",
        "A DeepSpeed file, as [zero1.yaml](../regressions/training/zero1.yaml), has",
        "[DeepSpeed's own keys](https://www.deepspeed.ai/docs/config-json/).\n",
        *_tree(config.TrainConfig, paper),
        "## Regressions\n",
        "`regress`; the shipped ones are in [collections](../regressions/collections), [models](../regressions/models) and",
        f"[suites.yaml](../regressions/suites.yaml).\n\n{_doc(spec)}\n\n{_doc(catalogue)}\n",
        "A file of collections holds:\n",
        *_tree(spec.CollectionSpec),
        "A file of models holds:\n",
        *_tree(spec.ModelSpec),
        "Under the name of a suite, suites.yaml holds:\n",
        *_tree(spec.SuiteSpec),
    ]).rstrip("\n") + "\n"  # fmt: skip


# ---- docs/plugin.md ----------------------------------------------------------------------------------------------------


def patch_lines() -> Iterator[str]:
    """Yield the list of patches: every module of Pyserini that is touched, and why."""
    yield "| module of Pyserini | what is touched | why, and what is done |"
    yield "|---|---|---|"
    yield _patch_row("pyserini", "before it is loaded", java)
    for module, patch in patches.PATCHES.items():
        change = getattr(patch, "change", None)
        kind = "after it is loaded" if change is not None else "while it is loaded"
        yield _patch_row(module, kind, change or patch)
    for module, command in patches.MAINS.items():
        yield _patch_row(module, "its `__main__` block", command)


def _patch_row(module: str, kind: str, patch: Any) -> str:
    text = inspect.getdoc(patch)
    if not text:
        raise ConfigError(f"{patches.__name__}: {patch.__name__} does not say what it does")
    return f"| `{module}` | {kind} | {_flat(text)} |"


def plugin_page(page: str) -> str:
    """Return docs/plugin.md with its list of patches written anew."""
    before, _, rest = page.partition(START)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ConfigError(f"docs/plugin.md has no place for the patches, between {START} and {END}")
    return "\n".join([f"{before}{START}\n", *patch_lines(), f"\n{END}{after}"])


# ---- docs/files.md -----------------------------------------------------------------------------------------------------


def files_page() -> str:
    """Return docs/files.md: every module, script and YAML file with the first words that it says of itself."""
    lines = ["# Files", "", NOTICE.format("the first words of each file"), ""]
    for pattern in ("pyserini_rescale/**/*.py", "scripts/**/*.*", "regressions/**/*.yaml", ".ci/run"):
        folder = None
        for path in sorted(ROOT.glob(pattern), key=lambda path: (path.parent, path.name)):
            if (
                path.suffix not in (".py", ".sh", ".yaml", "")
                or path.name == "__init__.py"
                or "__pycache__" in path.parts
            ):
                continue
            if path.parent != folder:
                folder = path.parent
                about = folder / "__init__.py"
                lines += [
                    "",
                    f"## {folder.relative_to(ROOT)}",
                    *([_first_words(about), ""] if about.is_file() else [""]),
                ]
            lines.append(f"- [{path.name}](../{path.relative_to(ROOT)}): {_first_words(path)}")
    return "\n".join(lines) + "\n"


def _first_words(path: Path) -> str:
    """Return the first sentence of a module's docstring or of the comment at a file's head."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        text = ast.get_docstring(ast.parse(text)) or ""
    else:
        head = itertools.dropwhile(lambda line: line.startswith("#!"), text.splitlines())
        text = "\n".join(line.lstrip("# ") for line in itertools.takewhile(lambda line: line.startswith("#"), head))
    sentence = re.split(r"\.(?=\s|$)|: see ", " ".join(text.split("\n\n")[0].split()), maxsplit=1)[0]
    if not sentence:
        raise ConfigError(f"{path.relative_to(ROOT)} does not say what it is: its first line should")
    return _flat(sentence)


@reported
def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only say what is out of date")
    args = parser.parse_args(argv)
    plugin = DOCS / "plugin.md"
    made = {
        DOCS / "yaml.md": yaml_page(),
        DOCS / "files.md": files_page(),
        plugin: plugin_page(plugin.read_text(encoding="utf-8")),
    }
    old = [path for path, text in made.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    for path in old:
        if not args.check:
            write_text(path, made[path])
        print(f"{path} {'is out of date: python scripts/reference.py' if args.check else 'written'}")
    return 1 if args.check and old else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
