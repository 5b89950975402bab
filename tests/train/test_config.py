"""Training configurations: what is shipped, merged, changed and refused."""

import re

import pytest

from pyserini_rescale.errors import ConfigError
from pyserini_rescale.train import config as configs
from pyserini_rescale.train.deepspeed_file import read_deepspeed
from pyserini_rescale.train.schedule import lambdas, schedule

# arXiv 2606.18811, Table 2: backbone and the k of its rows.
TABLE2 = {
    "bert": [1], "distilbert": [1], "albert": [1], "gte-mlm": [1],
    "roberta": [1, 2, 4, 8, 16], "modernbert": [1, 2, 4, 8, 16], "ettin": [1, 2, 4, 8, 16],
}  # fmt: skip


def test_every_row_of_table_2_is_the_papers_recipe():
    wanted = {f"table2:{name}.k{k}" for name, ks in TABLE2.items() for k in ks}
    assert {name for name in configs.shipped() if name.startswith("table2:")} == wanted
    for name in sorted(wanted):
        found = configs.resolve(name)
        assert found.rescale.factor == int(name.rpartition(".k")[2])
        assert (found.rescale.scope, found.rescale.bias, found.rescale.shift) == ("shared", False, None)
        assert (found.loss.temperature, found.loss.candidates, found.regularizer.batch) == (1.0, "rank", "rank")
        assert (found.regularizer.query, found.regularizer.document) == (5e-2, 3e-3)
        assert (found.optimizer.learning_rate, found.optimizer.warmup_ratio, found.epochs) == (1e-4, 0.1, 1)
        assert (found.batch.per_device, found.batch.world_size, found.batch.accumulation) == (64, 8, 1)
        assert (found.text.query_length, found.text.document_length) == (256, 256)
        assert (found.compute.precision, found.compute.deepspeed) == ("bf16", "zero1.yaml")
        assert found.monitors.collapse.action == "warn"
        assert found.backbone.trust_remote_code is False
        assert found.output == f"runs/train/{found.name}"


def test_figure_2_has_all_lambdas_of_six_models():
    names = [name for name in configs.shipped() if name.startswith("figure2:")]
    found = {(c.regularizer.query, c.regularizer.document) for c in map(configs.resolve, names)}
    assert found == {(q, d) for q in (1e-2, 5e-2, 2e-1) for d in (6e-4, 3e-3, 1e-2)}
    assert len(names) == 6 * 9


@pytest.mark.parametrize("name", configs.shipped())
def test_shipped_configurations_have_no_fault(name):
    found = configs.resolve(name)
    if found.compute.deepspeed is not None:
        assert read_deepspeed(found.compute.deepspeed)["zero_optimization"]["stage"] == 1


def test_steps_of_the_papers_recipe():
    found = schedule(configs.resolve("table2:modernbert.k16"), 503_000)
    assert (found.global_batch, found.steps, found.warmup, found.ramp, found.candidates) == (512, 982, 99, 328, 128)


@pytest.mark.parametrize(
    ("rows", "changes", "steps", "candidates"),
    [
        (64, ["batch.per_device=8", "batch.world_size=2"], 4, 16),
        (79, ["batch.per_device=8", "batch.world_size=2"], 4, 16),  # the incomplete batch is left out
        (
            80,
            ["batch.per_device=8", "batch.world_size=2", "batch.accumulation=2"],
            2,
            16,
        ),
        (64, ["batch.per_device=8", "batch.world_size=2", "epochs=2.5"], 10, 16),
        (64, ["batch.per_device=8", "batch.world_size=2", "max_steps=3"], 3, 16),
        (64, ["batch.per_device=8", "batch.world_size=2", "loss.candidates=global"], 4, 32),
    ],
)
def test_steps_by_hand(rows, changes, steps, candidates):
    found = schedule(configs.resolve("paper", changes), rows)
    assert (found.steps, found.candidates) == (steps, candidates)


def test_too_few_rows_are_said():
    with pytest.raises(ConfigError, match="511 triples, fewer than one global batch of 512"):
        schedule(configs.resolve("paper"), 511)


def test_lambdas_are_a_function_of_the_step():
    settings = configs.resolve("paper").regularizer
    assert lambdas(settings, 100, 0) == (0, 0)
    assert lambdas(settings, 100, 50) == pytest.approx((5e-2 / 4, 3e-3 / 4))
    assert lambdas(settings, 100, 100) == lambdas(settings, 100, 982) == (5e-2, 3e-3)
    assert lambdas(settings, 0, 0) == (5e-2, 3e-3)


def test_all_faults_are_reported_together():
    changes = [
        "a.b=1",
        "optimizer.learning_rate=x",
        "rescale.factor=big",
        "batch.per_device=0",
        "seed=-1",
        "epochs=null",
    ]
    with pytest.raises(ConfigError) as raised:
        configs.resolve("paper", changes)
    message = str(raised.value)
    for part in ("a: unknown key", "optimizer.learning_rate", "rescale.factor", "batch.per_device", "seed", "epochs"):
        assert part in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("batch.per_device", "KEY=VALUE is needed"),
        ("=3", "KEY=VALUE is needed"),
        ("batch..x=3", "KEY=VALUE is needed"),
        ("seed=[1", "is not YAML"),
        ("batch=3", "batch: Input should be"),
        ("rescale={bias: true, factor: null}", "rescale.bias: the bias is divided by the factor"),
        ("data.files=[]", "exactly one of hub and files"),
        ("backbone.inflate=4", "an inflated decoder is untied"),
        ("text.query_length=1.5", "text.query_length"),
        ("optimizer.learning_rate=.nan", "optimizer.learning_rate"),
        ("name=../../x", "name"),
        ("output=", "output"),
        ("output=''", "output"),
        ("backbone.name=' '", "backbone.name"),
        ("data.files=['']", "data.files"),
        ("data.columns={query: positive}", "one column is named twice"),
        ("batch.world_size=99999999999999999999", "batch.world_size"),
        ("epochs=1e308", "epochs"),
    ],
)
def test_changes_that_cannot_be_used(change, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        configs.resolve("paper", [change])


def test_numbers_without_a_dot_are_numbers():
    assert configs.resolve("paper", ["optimizer.learning_rate=5e-4"]).optimizer.learning_rate == 5e-4


def test_files_replace_the_hub():
    found = configs.resolve("paper", ["data.files=[a.jsonl, b.tsv]"]).data
    assert (found.hub, found.subset, found.rows, found.files) == (None, None, None, ["a.jsonl", "b.tsv"])
    with pytest.raises(ConfigError, match="exactly one of hub and files"):
        configs.resolve("paper", ["data={hub: x, files: [a.jsonl]}"])


def test_what_was_known_of_other_data_is_forgotten():
    assert configs.resolve("paper", ["data.subset=triplet-hard"]).data.rows is None
    assert configs.resolve("paper", ["data.subset=triplet"]).data.rows == 503_000
    assert configs.resolve("paper", ["data.subset=triplet-hard", "data.rows=5"]).data.rows == 5
    found = configs.resolve("paper", ["data.hub=foo/bar"]).data
    assert (found.hub, found.subset, found.rows) == ("foo/bar", None, None)


def test_columns_keep_their_names_unless_given():
    found = configs.resolve("paper", ["data.columns={query: anchor}"]).data
    assert found.columns == {"query": "anchor", "positive": "positive", "negative": "negative"}


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_extends_another_and_variants_are_crossed(tmp_path):
    write(tmp_path / "base.yaml", "extends: paper.yaml\nseed: 1\nvariants: {a: {seed: 2}, b: {seed: 3}}\n")
    text = "extends: base.yaml\nvariants:\n  - [b]\n  - {x: {epochs: 2}, y: {epochs: 3}}\n"
    child = write(tmp_path / "child.yaml", text)
    found = configs.resolve(f"{child}:b.y")
    assert (found.seed, found.epochs, found.batch.per_device, found.name) == (3, 3, 64, "b.y")
    assert configs.config_files(f"{child}:b.y")[:2] == [child, tmp_path / "base.yaml"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extends: nowhere.yaml\n", "there is no nowhere.yaml"),
        ("extends: own.yaml\n", "extends itself"),
        ("extends: 3\n", "the name of a file is needed"),
        ("- 1\n", "is not a table of keys"),
        ("seed: 1\nseed: 2\n", "line 2: the key seed is given twice"),
        ("? [a]\n: 1\n", "a key is not a plain word"),
        ("seed: [1\n", "line 2"),
        ("extends: paper.yaml\nvariants: [[a]]\n", "the extended file has no a"),
        ("extends: paper.yaml\nvariants: 3\n", "a table of named changes is needed"),
        ("extends: paper.yaml\nvariants: {a: 3}\n", "is not a table"),
        ("extends: paper.yaml\nvariants: [[[x]]]\n", "the extended file has no"),
        ("extends: paper.yaml\nvariants: [{a.b: {}, a: {}}, {c: {}, b.c: {}}]\n", "two of them would have one name"),
        ("", "is not a table of keys"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, text, message):
    path = write(tmp_path / "own.yaml", text)
    with pytest.raises(ConfigError, match=re.escape(message)):
        configs.resolve(f"{path}:a" if "variants" in text else str(path))


def test_variants_may_be_numbers(tmp_path):
    path = write(tmp_path / "own.yaml", "extends: paper.yaml\nvariants: {1: {seed: 1}, 2: {seed: 2}}\n")
    assert configs.resolve(f"{path}:2").seed == 2
    with pytest.raises(ConfigError, match="holds 2 variants"):
        configs.resolve(str(path))


@pytest.mark.parametrize(
    "name",
    ["nowhere", "table2", "table2:bert.k3", "/nowhere/x.yaml", "smoke:x", "zero1", "x" * 300, "~nouser/x", "a\0b"],
)
def test_names_that_mean_nothing(name):
    with pytest.raises(ConfigError):
        configs.resolve(name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{zero_optimization: {stage: 3}}", "stage 1 is what is supported"),
        ("{zero_optimization: {stage: 0}}", "stage 1 is what is supported"),
        ("[1]", "is not a table"),
        ("{zero_optimization: 3}", "stage 1 is what is supported"),
        (
            "{zero_optimization: {stage: 1}, train_micro_batch_size_per_gpu: 7}",
            "train_micro_batch_size_per_gpu: the training",
        ),
        (
            "{zero_optimization: {stage: 1}, bf16: {enabled: true}, optimizer: {}}",
            "bf16.enabled, optimizer: the training",
        ),
    ],
)
def test_deepspeed_files_that_cannot_be_used(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        read_deepspeed(str(write(tmp_path / "ds.json", text)))
    with pytest.raises(ConfigError, match="neither a file nor a shipped one"):
        read_deepspeed("nowhere.yaml")


def test_a_variant_without_its_file_is_recognised():
    with pytest.raises(ConfigError, match="did you mean .*table2:modernbert.k16"):
        configs.resolve("modernbert.k16")
