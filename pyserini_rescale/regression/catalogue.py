"""Reading regressions/: collections, models and suites from YAML, and the regressions that they are together.

A file of models/ or collections/ is one of them, under the name of the file, or a family: ``shared`` holds what they have
in common, ``models`` (``collections``) what each adds, by name; the two are merged table by table, so that nothing is
copied. What a family's table holds may be a family again, names joined by a dot. In place of names, ``variants_of: FILE``
gives one model for each variant of a training configuration. All faults of all files are reported together.
"""

import dataclasses
import difflib
import fnmatch
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pydantic

from pyserini_rescale.errors import ConfigError, one_line
from pyserini_rescale.regression.spec import OWN, CollectionSpec, ModelSpec, Regression, SuiteSpec
from pyserini_rescale.train.config import shipped
from pyserini_rescale.yaml_files import fault_line, read_yaml

SUITES = "suites.yaml"


@dataclasses.dataclass(frozen=True)
class Catalogue:
    """All that a folder holds. regressions: by name, in the order of the files, with the parts of means; suites: name ->
    what it says; files: name of a model -> the file it is written in."""

    folder: Path
    regressions: dict[str, Regression]
    suites: dict[str, SuiteSpec]
    files: dict[str, str]

    def choose(self, names: list[str], suite: str | None = None) -> list[Regression]:
        """Return the regressions that names mean: one's own name, a model's, or a pattern; and those of a suite.

        Parts of means come only where they are named. Raises ConfigError, with near matches, for all that mean nothing.
        """
        if suite is not None and suite not in self.suites:
            raise ConfigError(f"no suite is called {suite}: there are {', '.join(self.suites) or 'none'}")
        asked = [*names, *(self.suites[suite].regressions if suite is not None else [])]
        found: dict[str, Regression] = {}
        faults = []
        for name in asked:
            meant = self._meant(name)
            found |= {one.name: one for one in meant}
            if not meant:
                near = (
                    difflib.get_close_matches(name, self.regressions, n=3, cutoff=0.4) or sorted(self.regressions)[:3]
                )
                faults.append(f"no regression is called {name} (near: {', '.join(near)})")
        if faults:
            raise ConfigError(f"{'; '.join(faults)}: `regress list` shows all")
        return list(found.values())

    def _meant(self, name: str) -> list[Regression]:
        if name in self.regressions:
            return [self.regressions[name]]
        whole = [one for one in self.regressions.values() if not one.is_part]
        by_model = [one for one in whole if one.model.name == name]
        return by_model or [one for one in whole if fnmatch.fnmatchcase(one.name, name)]


def load(folder: Path) -> Catalogue:
    """Return what a folder holds; raises ConfigError that lists every fault of every file."""
    faults: list[str] = []
    collections = _named(folder / "collections", "collections", CollectionSpec, faults)
    models = _named(folder / "models", "models", ModelSpec, faults)
    # A name that a broken file may hold is not reported as unknown too.
    builder = _Builder({name: spec for name, (_, spec) in collections.items()}, models, faults, whole=not faults)
    for label, spec in collections.values():
        builder.check_collection(label, spec)
    for label, spec in models.values():
        builder.add(label, spec)
    suites = _suites(folder / SUITES, faults)
    files = {name: label.partition(":")[0] for name, (label, _) in models.items()}
    found = Catalogue(folder, builder.found, suites, files)
    if not faults:
        for name, suite in suites.items():
            unknown = [pattern for pattern in suite.regressions if not found._meant(pattern)]
            faults += [f"{SUITES}: {name}: no regression is called {pattern}" for pattern in unknown]
    if faults:
        raise ConfigError(f"{len(faults)} fault(s) in {folder}: {'; '.join(faults)}")
    return found


def load_all(folder: Path) -> dict[str, Regression]:
    """Return all regressions of a folder by name, as ``load`` does."""
    return load(folder).regressions


def choose(names: list[str], folder: Path) -> list[Regression]:
    """Return the regressions that ``names`` mean, as ``Catalogue.choose`` does."""
    return load(folder).choose(names)


class _Builder:
    """From specs to regressions; faults are added to a list, those of names only where every file could be read."""

    def __init__(
        self, collections: Mapping[str, CollectionSpec], models: Mapping[str, tuple[str, ModelSpec]],
        faults: list[str], whole: bool,
    ) -> None:  # fmt: skip
        self.collections, self.models, self.faults, self.whole = collections, models, faults, whole
        self.found: dict[str, Regression] = {}

    def check_collection(self, label: str, spec: CollectionSpec) -> None:
        for key, names in (("mean_of", spec.mean_of), ("index_of", [spec.index_of] if spec.index_of else [])):
            for name in names:
                other = self._collection(name, f"{label}: {key}")
                if other is not None and (other.mean_of or other.index_of):
                    self.faults.append(f"{label}: {key}: {name} has no documents and index of its own")
                elif other is not None and key == "mean_of":
                    strangers = [measure for measure in spec.measures if measure not in other.measures]
                    self.faults += [f"{label}: {key}: {name} has no {measure}" for measure in strangers]

    def add(self, label: str, model: ModelSpec) -> None:
        """Add the regressions of a model: on every collection that it expects something of, and on their parts."""
        base, lessons = self._training(label, model)
        for name, expected in model.expected.items():
            collection = self._collection(name, f"{label}: expected.{name}")
            if collection is None:
                continue
            strangers = [measure for measure in expected.measures if measure not in collection.measures]
            if strangers:
                self.faults.append(
                    f"{label}: expected.{name}.measures: {', '.join(strangers)} not among the collection's"
                )
            for each in collection.mean_of or [name]:
                if each in self.collections:
                    self._add_one(label, model, self.collections[each], base, lessons)
            if collection.mean_of:
                parts = tuple(
                    self.found[f"{each}.{model.name}"] for each in collection.mean_of if each in self.collections
                )
                regression = Regression(collection, model, base, lessons, parts=parts)
                self.found[regression.name] = regression

    def _add_one(
        self, label: str, model: ModelSpec, collection: CollectionSpec, base: ModelSpec | None,
        lessons: CollectionSpec | None,
    ) -> Regression:  # fmt: skip
        if model.training is not None and model.training.triples == OWN:
            lessons = collection.as_training()
            if lessons is None:
                where = f"{label}: expected.{collection.name}"
                self.faults.append(f"{where}: training.triples is {OWN}, and {collection.name} has no training split")
        indexed = None
        if collection.index_of is not None and collection.index_of in self.collections:
            indexed = self._add_one(label, model, self.collections[collection.index_of], base, lessons)
        regression = Regression(collection, model, base, lessons, indexed)
        self.found[regression.name] = regression
        return regression

    def _training(self, label: str, model: ModelSpec) -> tuple[ModelSpec | None, CollectionSpec | None]:
        """Return the model that a trained one starts from and the collection it learns from, where it names them."""
        training = model.training
        if training is None:
            return None, None
        _, base = ("", None) if training.model is None else self.models.get(training.model, ("", None))
        if training.model is not None and (base is None or base.training is not None):
            if self.whole:
                self.faults.append(f"{label}: training.model: there is no model {training.model} that lies somewhere")
        if training.triples in (None, OWN):
            return base, None
        lessons = self._collection(training.triples, f"{label}: training.triples")
        if lessons is not None and lessons.training is None:
            self.faults.append(f"{label}: training.triples: {training.triples} has no training split")
        return base, lessons and lessons.as_training()

    def _collection(self, name: str, where: str) -> CollectionSpec | None:
        if name not in self.collections and self.whole:
            self.faults.append(f"{where}: there is no collection {name}")
        return self.collections.get(name)


# Files


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``changes`` laid over it, table by table."""
    both = {
        key: merged(base[key], value)
        for key, value in changes.items()
        if isinstance(value, dict) and isinstance(base.get(key), dict)
    }
    return {**base, **changes, **both}


def _named(folder: Path, kind: str, spec: type[pydantic.BaseModel], faults: list[str]) -> dict[str, tuple[str, Any]]:
    """Return name -> (where it is written, spec) of what has no fault; add the faults of the others.

    kind: the key under which a family of the folder has its members.
    """
    found: dict[str, tuple[str, Any]] = {}
    for path, label, content in _contents(folder, faults):
        if isinstance(content, dict) and ({kind, "variants_of"} & set(content)):
            members = _family(content, kind, spec, label, faults)
        else:
            single = _valid(spec, content, f"{label}: ", faults)
            if single is not None and single.name != path.stem:
                faults.append(f"{label}: name: {single.name} is not the file's name")
            members = [] if single is None else [(label, single)]
        for where, member in members:
            if member.name in found:
                faults.append(f"{where}: {found[member.name][0]} has that name too")
            found[member.name] = (where, member)
    return found


def _family(
    content: dict[str, Any], kind: str, spec: type[pydantic.BaseModel], label: str, faults: list[str]
) -> list[tuple[str, Any]]:
    """Return (where, spec) for the members of a family; a fault that all of them have is said once."""
    found = []
    each: list[tuple[str, list[str]]] = []
    try:
        members = _members(content, kind, {}, "")
    except ConfigError as error:
        faults.append(f"{label}: {one_line(error)}")
        return []
    for name, member in members.items():
        of_this: list[str] = []
        valid = _valid(spec, {**member, "name": name}, "", of_this)
        if valid is not None:
            found.append((f"{label}: {name}", valid))
        each.append((name, of_this))
    common = [fault for fault in each[0][1] if len(each) > 1 and all(fault in others for _, others in each)]
    faults += [f"{label}: every one: {fault}" for fault in common]
    faults += [f"{label}: {name}: {fault}" for name, of_this in each for fault in of_this if fault not in common]
    return found


def _members(family: dict[str, Any], kind: str, above: Mapping[str, Any], prefix: str) -> dict[str, dict[str, Any]]:
    """Return name -> content of a family's members, what is shared laid under it; ConfigError for what is no family."""
    where = f"{prefix}: " if prefix else ""
    unknown = [key for key in family if key not in ("shared", kind, "variants_of")]
    if unknown:
        raise ConfigError(f"{where}{', '.join(map(str, unknown))}: unknown key, beside shared and {kind}")
    shared, members = family.get("shared", {}), family.get(kind, {})
    if "variants_of" in family:
        members = merged(_variants(family["variants_of"], where), members if isinstance(members, dict) else {})
    for key, table in (("shared", shared), (kind, members)):
        if not isinstance(table, dict) or (key == kind and not table):
            raise ConfigError(f"{where}{key}: a table is needed")
    shared = merged(above, shared)
    found: dict[str, dict[str, Any]] = {}
    for key, content in members.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if not isinstance(content, dict):
            raise ConfigError(f"{name}: a table is needed")
        if kind in content:
            found |= _members(content, kind, shared, name)
        else:
            found[name] = merged(shared, content)
            if "name" in found[name]:
                raise ConfigError(f"{name}: name: its key is its name")
    return found


def _variants(file: Any, where: str) -> dict[str, Any]:
    """Return a member for each variant of a shipped training configuration, which it is trained by."""
    names = [name for name in shipped() if name.startswith(f"{file}:")]
    if not names:
        raise ConfigError(f"{where}variants_of: {file} is no shipped training configuration with variants")
    return {name.partition(":")[2]: {"training": {"config": name}} for name in names}


def _suites(path: Path, faults: list[str]) -> dict[str, SuiteSpec]:
    if not path.exists():
        return {}
    try:
        content = read_yaml(path)
    except ConfigError as error:
        faults.append(f"{path.name}: {one_line(error)}")
        return {}
    if not isinstance(content, dict):
        faults.append(f"{path.name}: a table of suites is needed")
        return {}
    found = {name: _valid(SuiteSpec, suite, f"{path.name}: {name}: ", faults) for name, suite in content.items()}
    return {name: suite for name, suite in found.items() if suite is not None}


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


def _valid(kind: type[pydantic.BaseModel], content: Any, where: str, faults: list[str]) -> Any:
    """Return ``content`` as a spec, or None, its faults added."""
    try:
        return kind.model_validate(content)
    except pydantic.ValidationError as error:
        faults += [f"{where}{fault_line(detail)}" for detail in error.errors()]
        return None
