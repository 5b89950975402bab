"""YAML of regressions: what is read, and that all faults are reported together."""

from pathlib import Path

import pytest
import yaml

from pyserini_rescale import yaml_files
from pyserini_rescale.errors import ConfigError
from pyserini_rescale.regression import catalogue, spec

COLLECTION = """\
name: toys
description: toys
folder: toys
documents: 3
queries: 2
judgements: 2
measures: [nDCG@10, RR@10]
"""
MODEL = """\
name: tiny.k16
description: tiny
folder: tiny
expected:
  toys:
    measures:
      nDCG@10: {published: 0.5, tolerance: 0.01}
      RR@10: {published: 0.5, measured: 0.4, tolerance: 0.01}
    counts:
      documents: {measured: 3, tolerance: 0}
"""


def write(root: Path, collection: str = COLLECTION, model: str = MODEL) -> Path:
    for kind, name, text in (("collections", "toys", collection), ("models", "tiny.k16", model)):
        (root / kind).mkdir(parents=True, exist_ok=True)
        (root / kind / f"{name}.yaml").write_text(text)
    return root


def faults(root: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        catalogue.load_all(root)
    assert caught.value.exit_code == 2 and "\n" not in str(caught.value)
    return str(caught.value)


def test_a_regression_is_a_pair(tmp_path):
    found = catalogue.load_all(write(tmp_path))
    assert list(found) == ["toys.tiny.k16"]
    regression = found["toys.tiny.k16"]
    assert regression.name == "toys.tiny.k16" and regression.collection.hits == 1000
    assert regression.expected.measures["nDCG@10"].reference == 0.5  # nothing measured: what was published
    assert regression.expected.measures["RR@10"].reference == 0.4
    assert regression.expected.measures["RR@10"].published == 0.5


def test_all_faults_of_all_files_are_reported_together(tmp_path):
    collection = COLLECTION.replace("documents: 3", "documents: many").replace("queries: 2\n", "") + "colour: red\n"
    model = (
        MODEL.replace("tolerance: 0", "tolerance: -1").replace("name: tiny.k16", "name: Tiny k16") + "batch_size: 0\n"
    )
    text = faults(write(tmp_path, collection, model))
    for part in (
        "collections/toys.yaml: documents", "'many'", "colour: unknown key",
        "models/tiny.k16.yaml: name", "expected.toys.counts.documents.tolerance", "batch_size",
    ):  # fmt: skip
        assert part in text


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("queries: 2", "queries: 2\nqueries: 3", "line 6: the key queries is given twice"),
        ("queries: 2", "queries: '2'", "queries: Input should be a valid integer"),
        ("queries: 2", "queries: true", "queries: Input should be a valid integer"),
        ("queries: 2", "queries: -2", "queries: Input should be greater than or equal to 0"),
        ("queries: 2", "queries: [", "collections/toys.yaml: line"),
        ("[nDCG@10, RR@10]", "[nDCG@10, nDGC@5, RR@]", "not a measure of ir_measures: nDGC@5, RR@"),
        ("[nDCG@10, RR@10]", "[]", "measures"),
        ("[nDCG@10, RR@10]", "[nDCG@10]", "expected.toys.measures: RR@10 not among the collection's"),
        ("name: toys", "name: other", "name: other is not the file's name"),
        ("queries: 2\n", "", "queries missing: only a built-in collection may leave them out"),
        ("folder: toys", "split: test", "folder, ir_datasets or both are needed, or builtin or mean_of alone"),
        ("folder: toys", "folder: toys\nbuiltin: docstrings", "or builtin or mean_of alone"),
        ("folder: toys", "builtin: bricks", "builtin: Input should be 'docstrings'"),
        ("folder: toys", "folder: toys\ntraining: {ir_datasets: x}", "training.split: missing"),
        ("queries: 2", "queries: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
    ],
)
def test_faults_of_a_collection(tmp_path, old, new, message):
    assert message in faults(write(tmp_path, COLLECTION.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("  toys:", "  bricks:", "expected.bricks: there is no collection bricks"),
        ("RR@10: {published", "RR@10: {publishd", "publishd: unknown key"),
        ("measured: 0.4", "measured: .nan", "measured"),
        ("documents: {measured", "docs: {measured", "counts.docs.[key]: Input should be 'documents'"),
        ("folder: tiny", "folder: tiny\nweights: abc", "weights"),
        (
            "nDCG@10: {published: 0.5, tolerance: 0.01}",
            "nDCG@10: {published: 0.5}",
            "nDCG@10: Value error, tolerance is needed, or at_most in its place",
        ),
    ],
)
def test_faults_of_a_model(tmp_path, old, new, message):
    assert message in faults(write(tmp_path, model=MODEL.replace(old, new, 1)))


# Families


FAMILY = """\
shared:
  folder: tiny
  batch_size: 8
  expected:
    toys:
      measures:
        nDCG@10: {tolerance: 0.01}
models:
  tiny.k1:
    description: one
    expected:
      toys:
        measures:
          nDCG@10: {published: 0.1}
  tiny.k16:
    description: sixteen
    folder: big
    expected:
      toys:
        measures:
          nDCG@10: {published: 0.5, tolerance: 0.02}
          RR@10: {measured: 0.4, tolerance: 0.01}
"""


def test_a_family_shares_what_its_models_have_in_common(tmp_path):
    write(tmp_path, model=MODEL.replace("tiny.k16", "single")).joinpath("models/tiny.k16.yaml").rename(
        tmp_path / "models" / "single.yaml"
    )
    (tmp_path / "models" / "family.yaml").write_text(FAMILY)
    found = catalogue.load_all(tmp_path)
    assert list(found) == ["toys.tiny.k1", "toys.tiny.k16", "toys.single"]
    one, other = found["toys.tiny.k1"], found["toys.tiny.k16"]
    assert (one.model.folder, other.model.folder, one.model.batch_size) == ("tiny", "big", 8)
    assert one.expected.measures["nDCG@10"] == spec.Figure(published=0.1, tolerance=0.01)
    assert other.expected.measures["nDCG@10"] == spec.Figure(published=0.5, tolerance=0.02)
    assert set(one.expected.measures) == {"nDCG@10"} and set(other.expected.measures) == {"nDCG@10", "RR@10"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("shared:", "sahred:", "models/family.yaml: sahred: unknown key, beside shared and models"),
        ("  batch_size: 8", "  batch_size: 0", "models/family.yaml: every one: batch_size"),
        ("  tiny.k16:", "  tiny.k1:", "the key tiny.k1 is given twice"),
        ("  tiny.k16:", "  Tiny k16:", "models/family.yaml: Tiny k16: name"),
        ("    description: one", "    name: one\n    description: one", "models/family.yaml: tiny.k1: name: its key is its name"),
        ("    description: one\n", "", "models/family.yaml: tiny.k1: description: missing"),
        ("{published: 0.1}", "{publishd: 0.1}", "tiny.k1: expected.toys.measures.nDCG@10.publishd: unknown key"),
        ("RR@10: {m", "R@5: {m", "models/family.yaml: tiny.k16: expected.toys.measures: R@5 not among the collection's"),
        ("  tiny.k16:", "  made: 3\n  tiny.k16:", "models/family.yaml: made: a table is needed"),
        ("  tiny.k16:", "  other:", "models/other.yaml: models/family.yaml: other has that name too"),
    ],
)  # fmt: skip
def test_faults_of_a_family_say_which_model(tmp_path, old, new, message):
    write(tmp_path, model=MODEL.replace("tiny.k16", "other")).joinpath("models/tiny.k16.yaml").rename(
        tmp_path / "models" / "other.yaml"
    )
    text = FAMILY.replace(old, new, 1)
    (tmp_path / "models" / "family.yaml").write_text(text)
    said = faults(tmp_path)
    assert message in said and said.startswith("1 fault(s)")


@pytest.mark.parametrize("text", ["models:\n", "models: {}\n", "models: [a]\n", "shared: 3\nmodels: {a: {}}\n"])
def test_a_family_without_tables_is_refused(tmp_path, text):
    write(tmp_path).joinpath("models", "family.yaml").write_text(text)
    assert "models/family.yaml: " in faults(tmp_path) and "a table is needed" in faults(tmp_path)


def test_a_duplicate_key_deep_inside_is_found(tmp_path):
    model = MODEL.replace("measured: 0.4, tolerance: 0.01", "tolerance: 0.01, tolerance: 0.02")
    assert "models/tiny.k16.yaml: line 8: the key tolerance is given twice" in faults(write(tmp_path, model=model))


def test_an_empty_file_and_a_missing_folder(tmp_path):
    assert "collections/toys.yaml: the file" in faults(write(tmp_path / "a", collection=""))
    assert "is not a folder" in faults(tmp_path / "nowhere")


def test_unknown_names_list_near_matches(tmp_path):
    write(tmp_path)
    assert [found.name for found in catalogue.choose(["toys.tiny.k16", "toys.tiny.k16"], tmp_path)] == ["toys.tiny.k16"]
    with pytest.raises(
        ConfigError, match=r"no regression is called toys.tiny \(near: toys.tiny.k16\).*called bricks.*regress list"
    ):
        catalogue.choose(["toys.tiny", "bricks"], tmp_path)


def test_the_files_of_this_project_have_no_fault():
    found = catalogue.load_all(yaml_files.default_folder())
    assert "scifact.splade-tiny" in found
    regression = found["scifact.splade-tiny"]
    assert (regression.collection.documents, regression.model.max_length) == (5183, 256)
    assert regression.expected.measures["nDCG@10"].reference == pytest.approx(0.642, abs=0.0005)
    assert regression.expected.measures["nDCG@10"].tolerance == 0.001
    assert set(regression.expected.measures) == set(regression.collection.measures)


def test_yaml_of_a_spec_reads_back(tmp_path):
    regression = catalogue.load_all(write(tmp_path))["toys.tiny.k16"]
    text = yaml_files.to_yaml(regression.collection.model_dump(exclude_none=True))
    assert spec.CollectionSpec.model_validate(yaml.safe_load(text)) == regression.collection
