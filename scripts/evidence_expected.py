"""Measured figures of the evidence as expected values of the regressions: see evidence.py. Not a command of its own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evidence import BACKBONES, COLLECTIONS, MEASURES, SEEDS, read_results
from evidence_report import SETTINGS

DESCRIPTIONS = {
    "k1": "as it is (k = 1)",
    "auto-k": "at the k that is found by itself",
    "auto-offset": "with an offset of the logits that is found by itself",
    "per-term-offset": "with an offset for each term",
    "k4-offset": "at k = 4 with an offset",
    "k16-offset": "at k = 16 with an offset",
    "auto-k-offset": "with the k and the offset that are found by themselves",
    "auto-k-offset-shared": "with the k and the offset that are found by themselves, scope shared",
    "offset-5": "with an offset that leaves 5 % of the vocabulary active",
    "offset-15": "with an offset that leaves 15 % of the vocabulary active",
    "k16-head-rate": "at k = 16, the head learning as at k = 1",
    "k4-offset-head-rate": "at k = 4 with an offset, the head learning as at k = 1",
    "k16-offset-head-rate": "at k = 16 with an offset, the head learning as at k = 1",
    "k16-balanced": "at k = 16, scope balanced",
    "k16-untied": "at k = 16, scope untied",
    "k16-long": "at k = 16, four times as many steps",
    "auto-offset-long": "with an offset that is found by itself, four times as many steps",
    "auto-k-offset-long": "with the k and the offset that are found by themselves, four times as many steps",
    "k1-paper-rate": "as it is, at the paper's learning rate",
    "k16-paper-rate": "at k = 16, at the paper's learning rate",
    "auto-offset-paper-rate": "with an offset that is found by itself, at the paper's learning rate",
}
# Few queries and few documents with relevance make a last bit count for more.
_TOLERANCE = {"docstrings": 0.03, "scifact": 0.05}
_SMALL = 0.05  # where RR@10 is below, half the tolerance: there a gain of .03 would be news
_ORDER = ("nDCG@10", "RR@10", "R@100", "R@1000")
_HEAD = """\
# The mini backbones of the package, trained by regressions/training/mini.yaml: what k, and what an offset of the logits, make of
# one and the same head. Trained on the own training split of each collection. Written by `scripts/evidence.py expected` out of
# docs/evidence/results. Keys: docs/yaml.md.
#
# The docstrings are those of the Python that runs and of the packages that are installed, so figures hold only where both
# fingerprints are those below. On one machine they repeat to the last digit (one thread, one seed); tolerances are for other
# processors and versions of torch, whose last bits 120 steps amplify. Seeds differ by more: docs/evidence.md.
"""


def expected(results: Path) -> str:
    """Return the text of regressions/models/mini.yaml: the first seed of every setting that was measured."""
    found = read_results(results)
    chosen = {(one["backbone"], one["setting"], one["collection"]): one for one in found if one["seed"] == SEEDS[0]}
    return _HEAD + "\n".join([*_shared(chosen), *_models(chosen)]) + "\n"


def description(setting: str) -> str:
    return DESCRIPTIONS.get(setting) or f"at k = {setting.removeprefix('k')}"


def _shared(chosen: dict[tuple[str, str, str], dict[str, Any]]) -> Iterator[str]:
    yield from ("shared:", "  training: {triples: own}", "  expected:")
    for collection in COLLECTIONS:
        of_it = [one for key, one in chosen.items() if key[2] == collection]
        prints = {(one["collection_sha256"], one["triples_sha256"]) for one in of_it}
        if len(prints) != 1:
            raise SystemExit(f"{collection}: results of {len(prints)} states of the collection; one is needed")
        newest = max(of_it, key=lambda one: one["date"])
        versions = ", ".join(
            f"{name} {newest['versions'][name]}"
            for name in ("python", "pyserini", "torch", "transformers", "tokenizers")
        )
        yield f"""\
    {collection}:
      collection: {of_it[0]["collection_sha256"]}
      triples: {of_it[0]["triples_sha256"]}
      counts:
        unretrieved_queries: {{measured: 0, tolerance: 10}}
      measured_with:
        command: python scripts/evidence.py run --work runs/evidence (scores all pairs by exact dot products)
        date: "{newest["date"]}"
        versions: {versions}
        machine: {_machine(newest["machine"])}"""


def _machine(machine: dict[str, Any]) -> str:
    system = machine["system"].partition("-")[0]
    return f"{system}, {machine['processor']}, {machine['cpus']} CPUs (one used for training), no GPU"


def _models(chosen: dict[tuple[str, str, str], dict[str, Any]]) -> Iterator[str]:
    yield "models:"
    for backbone in (name for name in BACKBONES if any(key[0] == name for key in chosen)):
        yield f"  mini-{backbone}:\n    shared:\n      training: {{backbone: mini-{backbone}}}\n    models:"
        for setting in SETTINGS:
            measured = {name: chosen[key] for name in COLLECTIONS if (key := (backbone, setting, name)) in chosen}
            if not measured:
                continue
            yield f"""\
      {setting}:
        description: mini-{backbone} {description(setting)}
        training: {{config: "mini:{backbone}.{setting}"}}
        expected:"""
            for collection, one in measured.items():
                tolerance = _TOLERANCE[collection] / (2 if one["measures"]["RR@10"] < _SMALL else 1)
                yield f"          {collection}:\n            measures:"
                for name in (name for name in _ORDER if name in MEASURES and name in one["measures"]):
                    if collection == "docstrings" and name == "R@1000":
                        continue  # a third of the collection
                    yield f"              {name}: {{measured: {one['measures'][name]:.4f}, tolerance: {tolerance:g}}}"
