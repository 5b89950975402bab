"""Reading regressions/: collections and models from YAML, and the regressions that they are together.

A file of models/ is one model, under the name of the file, or a family: ``shared`` holds what its models have in common,
``models`` what each adds, by name; the two are merged table by table, so that nothing is copied. All faults of all files
are reported together.
"""

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pydantic

from pyserini_rescale.errors import ConfigError, one_line
from pyserini_rescale.regression.spec import OWN, CollectionSpec, ModelSpec, Regression
from pyserini_rescale.yaml_files import fault_line, read_yaml

_FAMILY = {"shared", "models"}


def load_all(folder: Path) -> dict[str, Regression]:
    """Return all regressions of a folder by name, sorted.

    Raises ConfigError that lists every fault of every file.
    """
    faults: list[str] = []
    collections = _collections(folder / "collections", faults)
    models = _models(folder / "models", faults)
    broken = {path.stem for path in (folder / "collections").glob("*.yaml")} - set(collections)  # their faults are said
    found: dict[str, Regression] = {}
    for label, model in models.values():
        base, lessons = _training(model, models, collections, broken, label, faults)
        for name, expected in model.expected.items():
            collection = collections.get(name)
            if collection is None:
                if name not in broken:
                    faults.append(f"{label}: expected.{name}: there is no collections/{name}.yaml")
                continue
            strangers = [measure for measure in expected.measures if measure not in collection.measures]
            if strangers:
                faults.append(f"{label}: expected.{name}.measures: {', '.join(strangers)} not among the collection's")
            own = model.training is not None and model.training.triples == OWN
            if own and collection.training is None:
                faults.append(f"{label}: expected.{name}: training.triples is {OWN}, and {name} has no training split")
            regression = Regression(collection, model, base, collection.as_training() if own else lessons)
            found[regression.name] = regression
    if faults:
        raise ConfigError(f"{len(faults)} fault(s) in {folder}: {'; '.join(faults)}")
    return dict(sorted(found.items()))


def choose(names: list[str], folder: Path) -> list[Regression]:
    """Return the regressions called ``names``; ConfigError with near matches for all that do not exist."""
    known = load_all(folder)
    faults = []
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or sorted(known)[:3]
            faults.append(f"no regression is called {name} (near: {', '.join(near)})")
    if faults:
        raise ConfigError(f"{'; '.join(faults)}: `regress list` shows all")
    return [known[name] for name in dict.fromkeys(names)]


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``changes`` laid over it, table by table."""
    both = {
        key: merged(base[key], value)
        for key, value in changes.items()
        if isinstance(value, dict) and isinstance(base.get(key), dict)
    }
    return {**base, **changes, **both}


def _training(
    model: ModelSpec, models: Mapping[str, tuple[str, ModelSpec]], collections: Mapping[str, CollectionSpec],
    broken: set[str], label: str, faults: list[str],
) -> tuple[ModelSpec | None, CollectionSpec | None]:  # fmt: skip
    """Return the model that a trained one starts from and the collection it learns from, where it names them."""
    training = model.training
    if training is None:
        return None, None
    _, base = models.get(training.model, ("", None))
    if training.model is not None and (base is None or base.training is not None):
        faults.append(f"{label}: training.model: there is no model {training.model} that lies somewhere")
    if training.triples in (None, OWN):
        return base, None
    lessons = collections.get(training.triples)
    if lessons is None and training.triples not in broken:
        faults.append(f"{label}: training.triples: there is no collections/{training.triples}.yaml")
    elif lessons is not None and lessons.training is None:
        faults.append(f"{label}: training.triples: {training.triples} has no training split")
    return base, lessons and lessons.as_training()


def _collections(folder: Path, faults: list[str]) -> dict[str, CollectionSpec]:
    """Return name -> collection of the files that have no fault; add the faults of the others."""
    found = {}
    for path, label, content in _contents(folder, faults):
        spec = _valid(CollectionSpec, content, label, faults)
        if spec is not None and _named_as_file(spec.name, path, label, faults):
            found[spec.name] = spec
    return found


def _models(folder: Path, faults: list[str]) -> dict[str, tuple[str, ModelSpec]]:
    """Return name -> (where it is written, model), of single files and families."""
    found: dict[str, tuple[str, ModelSpec]] = {}
    for path, label, content in _contents(folder, faults):
        if isinstance(content, dict) and "models" in content:
            specs = _family(content, label, faults)
        else:
            spec = _valid(ModelSpec, content, label, faults)
            specs = [] if spec is None or not _named_as_file(spec.name, path, label, faults) else [(label, spec)]
        for where, spec in specs:
            if spec.name in found:
                faults.append(f"{where}: {found[spec.name][0]} has a model of that name")
            found[spec.name] = (where, spec)
    return found


def _family(content: dict[str, Any], label: str, faults: list[str]) -> list[tuple[str, ModelSpec]]:
    """Return (where, model) for the models of a family; a fault that all of them have is said once."""
    shared, models = content.get("shared", {}), content["models"]
    wrong = [f"{key}: unknown key, beside shared and models" for key in content if key not in _FAMILY]
    for key, table in (("shared", shared), ("models", models)):
        if not isinstance(table, dict) or (key == "models" and not table):
            wrong.append(f"{key}: a table is needed")
    if wrong:
        faults += [f"{label}: {fault}" for fault in wrong]
        return []
    found, each = [], []
    for name, changes in models.items():
        of_this: list[str] = []
        if isinstance(changes, dict):
            content = merged(shared, changes)
            if "name" in content:
                of_this.append("name: its key under models is its name")
            spec = _valid(ModelSpec, {**content, "name": name}, None, of_this)
            if spec is not None:
                found.append((f"{label}: {name}", spec))
        else:
            of_this.append("a table is needed")
        each.append((name, of_this))
    common = [fault for fault in each[0][1] if len(each) > 1 and all(fault in others for _, others in each)]
    faults += [f"{label}: every model: {fault}" for fault in common]
    faults += [f"{label}: {name}: {fault}" for name, of_this in each for fault in of_this if fault not in common]
    return found


def _contents(folder: Path, faults: list[str]) -> Iterator[tuple[Path, str, Any]]:
    """Yield (path, label, content) of the YAML files of a folder that can be read."""
    if not folder.is_dir():
        faults.append(f"{folder} is not a folder")
    for path in sorted(folder.glob("*.yaml")):
        label = f"{folder.name}/{path.name}"
        try:
            yield path, label, read_yaml(path)
        except ConfigError as error:
            faults.append(f"{label}: {one_line(error)}")


def _valid(kind: type[pydantic.BaseModel], content: Any, label: str | None, faults: list[str]) -> Any:
    """Return ``content`` as a spec, or None, its faults added."""
    try:
        return kind.model_validate(content)
    except pydantic.ValidationError as error:
        found = [fault_line(detail) for detail in error.errors()]
        faults += found if label is None else [f"{label}: {fault}" for fault in found]
        return None


def _named_as_file(name: str, path: Path, label: str, faults: list[str]) -> bool:
    if name != path.stem:
        faults.append(f"{label}: name: {name} is not the file's name")
    return name == path.stem
