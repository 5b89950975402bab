"""The encode command in this process: what it writes, what belongs to its folder, what is refused, and the check."""

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pyserini_rescale.cli import main
from pyserini_rescale.cli.encode import shard
from pyserini_rescale.encode import base, corpus
from pyserini_rescale.encode.base import DocumentTexts, QueryTexts
from pyserini_rescale.errors import ConfigError
from pyserini_rescale.processes import Place
from tests.encode.forks_corpus import write_corpus

DOCUMENTS, UNIT = 70, 16  # 5 units, the last of 6


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> str:
    return write_corpus(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", DOCUMENTS)


@pytest.fixture
def encode(bert, source, monkeypatch, capsys):
    """A function: output and further options -> (status, what was said on stderr)."""
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)

    def run(output: Path, *more: object, corpus: str = source, model: str = bert) -> tuple[int, str]:
        words = [
            "encode",
            "--corpus",
            corpus,
            "--model",
            model,
            "--output",
            output,
            "--device",
            "cpu",
            "--unit",
            UNIT,
            *more,
        ]
        status = main(list(map(str, words)))
        return status, capsys.readouterr().err

    return run


def read(output: Path) -> dict[str, dict[str, int]]:
    found = {}
    for path in sorted((output / "vectors").iterdir()):
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        found.update({line["id"]: line["vector"] for line in map(json.loads, data.decode().splitlines())})
    return found


def manifest(output: Path) -> dict:
    return json.loads((output / "manifest.json").read_text())


def errors(said: str) -> list[str]:
    assert "Traceback" not in said
    return [line for line in said.replace("\r", "\n").splitlines() if line.startswith("error:")]


def texts(source: str) -> dict[str, str]:
    lines = map(json.loads, Path(source).read_text().splitlines())
    return {line["_id"]: " ".join(filter(None, (line["title"], line["text"]))) for line in lines}


# ---- What is written -------------------------------------------------------------------------------------------------


def test_vectors_are_the_encoders_and_the_manifest_counts_them(encode, bert, source, tmp_path):
    status, said = encode(tmp_path / "out")
    assert status == 0, said
    found, expected = read(tmp_path / "out"), texts(source)
    assert list(found) == list(expected)
    one = DocumentTexts(bert, device="cpu")
    assert found == dict(zip(expected, one.encode(list(expected.values()), max_length=32), strict=True))
    said = manifest(tmp_path / "out")
    assert said["documents"] == DOCUMENTS and said["postings"] == sum(map(len, found.values()))
    assert said["impacts"] == sum(sum(vector.values()) for vector in found.values())
    assert said["largest_impact"] == max(max(vector.values(), default=0) for vector in found.values())
    assert said["terms_per_document"]["most"] == max(map(len, found.values()))
    assert said["quantizer"] == {"name": "model", "weight_range": 5.0, "quant_range": 256, "limit": None}
    assert said["asked"]["max_length"] == 32 and said["asked"]["policy"]["k"] == 1.0
    assert said["made_with"][0]["torch"] and said["made_with"][0]["device"] == "cpu"
    assert [part["documents"] for part in said["parts"]] == [16, 16, 16, 16, 6]


def test_one_file_a_unit_and_nothing_else_lies_where_anserini_looks(encode, tmp_path):
    encode(tmp_path / "out")
    names = sorted(path.name for path in (tmp_path / "out" / "vectors").rglob("*"))
    assert names == [f"part-{number:06d}.jsonl" for number in range(5)]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "manifest.json",
        "settings.json",
        "units",
        "vectors",
    ]


def test_gzipped_files_are_the_same_from_run_to_run(encode, tmp_path):
    for name in ("a", "b"):
        assert encode(tmp_path / name, "--gzip")[0] == 0
    encode(tmp_path / "plain")
    files = [{path.name: path.read_bytes() for path in (tmp_path / name / "vectors").iterdir()} for name in "ab"]
    assert files[0] == files[1] and all(name.endswith(".jsonl.gz") for name in files[0])
    assert read(tmp_path / "a") == read(tmp_path / "plain")


def test_batches_never_cross_a_unit_and_the_encoder_forgets(encode, monkeypatch, tmp_path):
    batches, seen = [], []
    plain = base.SpladeTexts._vectors

    def vectors(self, sequences):
        if self._screened is not None:
            seen.append(self._screened._seen)
            self._screened._seen += 1
        batches.append(len(sequences))
        return plain(self, sequences)

    monkeypatch.setattr(base.SpladeTexts, "_vectors", vectors)
    assert encode(tmp_path / "out", "--batch-size", 1000)[0] == 0
    assert sum(batches) == DOCUMENTS and max(batches) <= UNIT
    assert seen[0] == 0 and seen.count(0) == 5  # a fresh screen for each unit


def test_the_size_of_a_unit_is_the_corpuss_alone(monkeypatch):
    assert [corpus._unit_size(number, None) for number in (1, 20_000, 100_000, 8_841_823)] == [256, 313, 1563, 10_000]


def test_memory_of_a_unit_is_released_and_only_own_documents_are_parsed(source):
    opened = corpus.open_corpus(source)
    parsed = []
    spied = corpus.Corpus(
        opened.source, (), opened.files, opened.items, lambda *given: parsed.append(given) or opened.parse(*given)
    )
    found = {number: [text.id for text in some] for number, some in corpus._units(spied, UNIT, [1, 4])}
    assert found == {1: [f"d{number}" for number in range(16, 32)], 4: [f"d{number}" for number in range(64, 70)]}
    assert len(parsed) == 22
    assert list(corpus._units(spied, UNIT, [])) == []


# ---- Several processes ------------------------------------------------------------------------------------------------


def test_shards_and_launchers_divide_the_units(encode, monkeypatch, tmp_path):
    encode(tmp_path / "whole")
    for number in (2, 0, 1):
        status, said = encode(tmp_path / "shards", "--shard", f"{number}/3")
        assert status == 0
        assert (tmp_path / "shards" / "manifest.json").exists() == (number == 1)  # the last one writes it
    assert "other processes' and missing yet" not in said
    for number in (1, 0):
        monkeypatch.setenv("RANK", str(number))
        monkeypatch.setenv("WORLD_SIZE", "2")
        assert encode(tmp_path / "ranks")[0] == 0
    whole = {path.name: path.read_bytes() for path in (tmp_path / "whole" / "vectors").iterdir()}
    for name in ("shards", "ranks"):
        assert {path.name: path.read_bytes() for path in (tmp_path / name / "vectors").iterdir()} == whole
        assert manifest(tmp_path / name)["parts"] == manifest(tmp_path / "whole")["parts"]


def test_shards_of_launches():
    assert shard(None, Place(1, 4, 1)) == Place(1, 4, 1)
    places = [shard(f"{number}/3", Place(rank, 4, rank)) for number in range(3) for rank in range(4)]
    assert [one.number for one in places] == list(range(12)) and {one.count for one in places} == {12}
    for text in ("3/3", "1", "a/b", "-1/3", "0/0"):
        with pytest.raises(ConfigError, match="--shard"):
            shard(text, Place())


def test_a_process_takes_its_own_gpu_and_of_those_it_sees(monkeypatch):
    import torch

    for seen, local, expected in ((4, 3, "cuda:3"), (1, 3, "cuda:0"), (0, 3, "cuda:0")):
        monkeypatch.setattr(torch.cuda, "device_count", lambda seen=seen: seen)
        assert corpus.default_device(Place(7, 8, local)) == expected


# ---- What belongs to the folder ----------------------------------------------------------------------------------------


def test_a_folder_is_not_encoded_twice_and_resumes_only_as_it_began(encode, bert, modernbert, source, tmp_path):
    output = tmp_path / "out"
    assert encode(output, "--shard", "0/2")[0] == 0
    status, said = encode(output)
    assert status == 2 and "holds 3 finished units: --resume goes on" in errors(said)[0]
    for change, says in (
        (("--max-length", 9), "max_length was 32, is 9"),
        (("--quantizer", "x100"), "quantizer was model, is x100"),
        (("--top-terms", 5), "pruning was"),
        (("--share", 0.5), "pruning was"),
        (("--unit", 8), "unit was 16, is 8"),
        (("--gzip",), "gzip was False, is True"),
        (("--fields", "text"), "fields was"),
        (("--head", "bf16-anyway"), "head was float32, is bfloat16"),
    ):
        status, said = encode(output, "--resume", *change)
        assert status == 2 and len(errors(said)) == 1 and says in errors(said)[0], said
    status, said = encode(output, "--resume", model=modernbert)
    assert status == 2 and "model was" in errors(said)[0]
    other = write_corpus(tmp_path / "other.jsonl", DOCUMENTS, seed=1)
    status, said = encode(output, "--resume", corpus=other)
    assert status == 2 and "corpus was" in errors(said)[0]
    status, said = encode(output, "--resume")
    assert status == 0 and "2 of 5 units to do" in said
    assert list(read(output)) == list(texts(source))
    # The same corpus somewhere else, and gzipped, is the same corpus.
    moved = tmp_path / "moved.jsonl.gz"
    moved.write_bytes(gzip.compress(Path(source).read_bytes()))
    assert encode(output, "--resume", corpus=str(moved))[0] == 0


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_vectors_whose_settings_are_lost_are_not_gone_on_with(encode, modernbert, tmp_path):
    output = tmp_path / "out"
    assert encode(output, "--shard", "0/2")[0] == 0
    (output / "settings.json").unlink()
    for more, model in (((), {}), (("--quantizer", "x100"), {}), ((), {"model": modernbert})):
        status, said = encode(output, "--resume", *more, **model)
        assert status == 2 and "holds vectors and no settings.json" in errors(said)[0]
    assert not (output / "settings.json").exists() and len(list((output / "units").iterdir())) == 3


def test_settings_that_were_edited_are_not_gone_on_with(encode, tmp_path):
    output = tmp_path / "out"
    assert encode(output, "--shard", "0/2", "--quantizer", "x100")[0] == 0
    settings = output / "settings.json"
    plain = settings.read_text()
    edit(settings, quantizer={"name": "x100", "weight_range": 2.0, "quant_range": 100, "limit": None})
    status, said = encode(output, "--resume", "--quantizer", "x100")
    assert status == 2 and "its scale is not that of x100 any more" in errors(said)[0]
    pyserini = {"name": "pyserini", "weight_range": 5.0, "quant_range": 256, "limit": None}
    settings.write_text(plain)
    edit(settings, quantizer=pyserini)
    status, said = encode(output, "--resume", "--quantizer", "x100")
    assert status == 2 and "says two things of quantizer" in errors(said)[0]
    # Edited so that nothing in it contradicts: the units know.
    edit(settings, asked={**json.loads(plain)["asked"], "quantizer": "pyserini"})
    status, said = encode(output, "--resume", "--quantizer", "pyserini")
    assert status == 2 and "000000.json was made by other settings" in errors(said)[0]
    settings.write_text(plain)
    assert encode(output, "--resume", "--quantizer", "x100")[0] == 0


@pytest.mark.parametrize("text", ["{}", "[]", "null", '"x"', "{", '{"asked": 7}'])
def test_files_of_ours_that_were_damaged_are_named(encode, tmp_path, capsys, text):
    output = tmp_path / "out"
    assert encode(output)[0] == 0
    for name in ("units/000001.json", "units/notes.json", "settings.json"):
        path = output / name
        plain = path.read_text() if path.exists() else None
        path.write_text(text)
        status, said = encode(output, "--resume")
        assert status == 2 and len(errors(said)) == 1 and str(path) in errors(said)[0], said
        status, said = check(output, capsys)
        assert status in (1, 2) and str(path) in said and "Traceback" not in said
        path.unlink() if plain is None else path.write_text(plain)
    (output / "manifest.json").write_text(text)
    status, said = check(output, capsys)
    assert status == 1 and "manifest.json" in said and "--resume" in said


@pytest.mark.parametrize(
    "changes",
    [{"postings": "3"}, {"postings": -1}, {"impacts": 10**400}, {"file": 3}, {"file": "../settings.json"}, {"bytes": None}, {"documents": 1},
     {"made_with": []}, {"first_empty_ids": 3}, {"unit": [1]}, {"unit": 2}],
)  # fmt: skip
def test_records_of_other_types_are_named(encode, tmp_path, capsys, changes):
    output = tmp_path / "out"
    assert encode(output)[0] == 0
    edit(output / "units" / "000001.json", **changes)
    status, said = encode(output, "--resume")
    assert status == 2 and "000001.json" in errors(said)[0] and "remove it" in errors(said)[0]
    status, said = check(output, capsys)
    assert status == 1 and "000001.json" in said


@pytest.mark.parametrize(
    "changes",
    [{"quantizer": {"name": "model", "weight_range": scale, "quant_range": 256, "limit": None}}
     for scale in (0, -1.0, float("nan"), float("inf"), 10**400, True, "5")]
    + [{"asked": {}}, {"corpus": []}, {"calibration": {"candidates": []}}, {"calibration": 3}],
)  # fmt: skip
def test_settings_of_other_types_are_named(encode, tmp_path, capsys, changes):
    output = tmp_path / "out"
    assert encode(output, "--shard", "0/5")[0] == 0
    edit(output / "settings.json", **changes)
    for status, said in (encode(output, "--resume"), check(output, capsys)):
        assert status == 2 and len(errors(said)) == 1 and "settings.json is damaged" in errors(said)[0]


def test_vectors_that_were_removed_are_missing(encode, tmp_path, capsys):
    assert encode(tmp_path / "out")[0] == 0
    shutil.rmtree(tmp_path / "out" / "vectors")
    status, said = check(tmp_path / "out", capsys)
    assert status == 1 and "5 of 5 units are missing" in said
    assert encode(tmp_path / "out", "--resume")[0] == 0 and check(tmp_path / "out", capsys)[0] == 0


def test_names_that_the_system_refuses_are_one_line(encode, tmp_path, capsys):
    long = str(tmp_path / ("x" * 300))
    for status, said in (encode(long), encode(tmp_path / "out", corpus=long), check(Path(long), capsys)):
        assert status == 2 and len(errors(said)) == 1, said


def test_folders_that_are_not_ours(encode, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("x")
    (tmp_path / "file").write_text("x")
    for name, says in (("full", "holds other things (thesis.tex)"), ("file", "is a file")):
        status, said = encode(tmp_path / name)
        assert status == 2 and says in errors(said)[0]
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["thesis.tex"]


def test_options_that_cannot_be(encode, tmp_path, capsys):
    for more, says in (
        (("--sample", 1), "--sample 1"), (("--batch-size", 0), "--batch-size 0"), (("--max-length", 0), "--max-length 0"),
        (("--max-length", 9999), "beyond the 32 positions"), (("--top-terms", 0), "--top-terms 0"), (("--shard", "2/2"), "--shard"),
        (("--device", "tpu"), "unknown device"),
    ):  # fmt: skip
        status, said = encode(tmp_path / "out", *more)
        assert status == 2 and says in errors(said)[0], said
        assert not (tmp_path / "out").exists()
    assert main(["encode", "--corpus", "x"]) == 2 and "--model, --output is needed" in capsys.readouterr().err


# ---- Input that cannot be read -----------------------------------------------------------------------------------------


def test_a_bad_line_in_the_middle_is_found_before_anything_is_encoded(encode, source, tmp_path):
    lines = Path(source).read_text().splitlines(keepends=True)
    bad = tmp_path / "bad.jsonl"
    bad.write_text("".join([*lines[:40], lines[40][:-9] + "\n", *lines[41:]]))
    status, said = encode(tmp_path / "out", corpus=str(bad))
    assert status == 2 and len(errors(said)) == 1 and "bad.jsonl line 41 is not valid JSON" in errors(said)[0]
    assert not (tmp_path / "out").exists()


def test_a_corpus_damaged_between_two_runs_costs_nothing_that_was_done(encode, tmp_path):
    own = Path(write_corpus(tmp_path / "own.jsonl", DOCUMENTS))
    whole = own.read_bytes()
    assert encode(tmp_path / "plain", corpus=str(own))[0] == 0
    assert encode(tmp_path / "out", "--shard", "0/2", corpus=str(own))[0] == 0
    own.write_bytes(whole[: len(whole) // 2])
    status, said = encode(tmp_path / "out", "--resume", corpus=str(own))
    assert status == 2 and "own.jsonl line" in errors(said)[0]
    assert len(list((tmp_path / "out" / "units").iterdir())) == 3
    own.write_bytes(whole)
    assert encode(tmp_path / "out", "--resume", corpus=str(own))[0] == 0
    assert read(tmp_path / "out") == read(tmp_path / "plain")


@pytest.mark.parametrize("how", ["cut", "other text"])
def test_a_corpus_that_changes_while_it_is_encoded(encode, tmp_path, monkeypatch, how):
    own = Path(write_corpus(tmp_path / "own.jsonl", DOCUMENTS))
    whole = own.read_text().splitlines(keepends=True)
    plain, done = corpus._encode_unit, []

    def encode_unit(number, *given):
        plain(number, *given)
        done.append(number)
        if number == 1:
            own.write_text("".join(whole[:40] if how == "cut" else [*whole[:-1], whole[-1].replace("d69", "d99")]))

    monkeypatch.setattr(corpus, "_encode_unit", encode_unit)
    status, said = encode(tmp_path / "out", corpus=str(own))
    assert status == 2 and "has changed since" in errors(said)[0] and done == [0, 1]
    assert (
        len(list((tmp_path / "out" / "units").iterdir())) == 2
        and list((tmp_path / "out" / "unfinished").iterdir()) == []
    )


def test_a_model_that_gives_no_numbers_names_the_document(encode, monkeypatch, tmp_path):
    plain = base.SpladeTexts._vectors

    def vectors(self, sequences):
        found = plain(self, sequences)
        found[0, 7] = np.nan
        return found

    monkeypatch.setattr(base.SpladeTexts, "_vectors", vectors)
    status, said = encode(tmp_path / "out")
    assert status == 2 and "document d" in errors(said)[0] and "NaN" in errors(said)[0]
    assert list((tmp_path / "out" / "vectors").iterdir()) == []


# ---- Scales and pruning -------------------------------------------------------------------------------------------------


def test_scales_and_pruning(encode, bert, source, tmp_path):
    one = DocumentTexts(bert, device="cpu")
    weights = dict(zip(texts(source), one.weights(list(texts(source).values()), 32), strict=True))
    assert encode(tmp_path / "x100", "--quantizer", "x100")[0] == 0
    for name, vector in read(tmp_path / "x100").items():
        ids, values = weights[name]
        expected = dict(
            zip(one.terms[ids].tolist(), np.rint(values.astype(np.float64) * 100).astype(int).tolist(), strict=True)
        )
        assert vector == {term: impact for term, impact in expected.items() if impact}
    assert encode(tmp_path / "pruned", "--quantizer", "x100", "--top-terms", 4, "--share", 0.3)[0] == 0
    for name, vector in read(tmp_path / "pruned").items():
        largest = sorted(read(tmp_path / "x100")[name].values(), reverse=True)[:4]
        assert len(vector) <= 4 and sorted(vector.values(), reverse=True) == largest[: len(vector)]
    said = manifest(tmp_path / "pruned")
    assert said["left_out"] > 0 and said["asked"]["pruning"] == {"top_terms": 4, "share": 0.3}


def test_a_calibrated_scale_fits_a_byte_and_its_loss_is_in_the_manifest(encode, source, tmp_path):
    topics = tmp_path / "topics.tsv"
    topics.write_text("1\twind tunnel\n2\theat flow gas\n")
    status, said = encode(tmp_path / "out", "--quantizer", "calibrated", "--sample", 50, "--sample-topics", topics)
    assert status == 0 and "ranking kept on 2 queries" in said and "overlap@10" in said
    found = manifest(tmp_path / "out")
    assert found["quantizer"]["name"] == "calibrated" and found["quantizer"]["limit"] == 255
    assert 150 < found["largest_impact"] <= 255
    kept = found["calibration"]["candidates"][0]
    assert (
        0.8 < kept["overlap"] <= 1
        and 0.8 < kept["kendall"] <= 1
        and set(found["calibration"]["others"]) == {"pyserini", "x100"}
    )
    status, said = encode(tmp_path / "halves", "--quantizer", "calibrated", "--sample", 50)
    assert status == 0 and "first halves of documents" in said


def test_a_calibration_that_measured_nothing_says_so(encode, tmp_path):
    topics = tmp_path / "topics.tsv"
    topics.write_text("1\t...\n")
    single = Path(write_corpus(tmp_path / "single.jsonl", 1))
    words = ("--quantizer", "calibrated", "--sample-topics", topics)
    status, said = encode(tmp_path / "out", *words, corpus=str(single))
    assert status == 0 and "not measured, no query finds two documents" in said
    assert manifest(tmp_path / "out")["calibration"]["candidates"][0]["overlap"] is None


def test_what_a_scale_was_calibrated_on_belongs_to_the_folder(encode, tmp_path):
    topics, other = tmp_path / "topics.tsv", tmp_path / "other.tsv"
    topics.write_text("1\twind tunnel\n2\theat flow gas\n")
    other.write_text("1\twind\n")
    began = ("--quantizer", "calibrated", "--sample", 50, "--sample-topics", topics)
    assert encode(tmp_path / "out", *began, "--shard", "0/2")[0] == 0
    for more, says in (
        (("--sample", 40), "sample was 50, is 40"),
        (("--sample-topics", other), "sample_topics was"),
    ):
        status, said = encode(tmp_path / "out", *began, *more, "--resume")
        assert status == 2 and says in errors(said)[0]
    status, said = encode(tmp_path / "out", *began[:4], "--resume")
    assert status == 2 and "sample_topics was" in errors(said)[0]
    topics.rename(tmp_path / "moved.tsv")
    assert encode(tmp_path / "out", *began[:5], tmp_path / "moved.tsv", "--resume")[0] == 0


def test_a_sample_lies_evenly_over_the_corpus(source):
    opened = corpus.open_corpus(source)
    every = [text.text for _, text in opened.texts()]
    assert corpus._sample(opened, DOCUMENTS, 50) == [every[place * DOCUMENTS // 50] for place in range(50)]
    assert corpus._sample(opened, DOCUMENTS, 1000) == every


# ---- The check -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def encoded(encode, tmp_path, capsys) -> Path:
    assert encode(tmp_path / "out")[0] == 0
    return tmp_path / "out"


def check(folder: Path, capsys, *more: str) -> tuple[int, str]:
    status = main(["encode", "check", str(folder), *more])
    said = capsys.readouterr()
    return status, said.out + said.err


def test_check_proves_a_whole_corpus(encoded, capsys):
    status, said = check(encoded, capsys)
    assert status == 0 and "exactly once" in said and "70 documents in 5 files" in said


def _first(encoded: Path) -> Path:
    return encoded / "vectors" / "part-000000.jsonl"


def _forge(encoded: Path, change) -> None:
    """Change a part file and its record alike, so that only the comparison with the corpus can find it."""
    import hashlib

    lines = _first(encoded).read_bytes().splitlines(keepends=True)
    _first(encoded).write_bytes(b"".join(change(lines)))
    record = encoded / "units" / "000000.json"
    found = json.loads(record.read_text())
    data = _first(encoded).read_bytes()
    record.write_text(json.dumps({**found, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (
            lambda encoded: _forge(encoded, lambda lines: lines[:-1]),
            "15 documents of 16, and differs from the corpus at its line 16",
        ),
        (lambda encoded: _forge(encoded, lambda lines: [*lines, lines[3]]), "17 documents of 16"),
        (lambda encoded: _forge(encoded, lambda lines: [lines[1], lines[0], *lines[2:]]), "at its line 1"),
        (lambda encoded: _forge(encoded, lambda lines: [*lines[:4], lines[3], *lines[5:]]), "at its line 5"),
        (lambda encoded: _first(encoded).write_bytes(_first(encoded).read_bytes().replace(b"d1", b"d7")), "checksum"),
        (lambda encoded: _first(encoded).unlink(), "1 of 5 units are missing (0)"),
        (lambda encoded: (encoded / "units" / "000003.json").unlink(), "1 of 5 units are missing (3)"),
        (
            lambda encoded: (encoded / "vectors" / "copy.jsonl").write_bytes(_first(encoded).read_bytes()),
            "holds copy.jsonl",
        ),
        (lambda encoded: edit(encoded / "manifest.json", documents=71), "says otherwise than the units (documents)"),
        (lambda encoded: edit(encoded / "manifest.json", parts=[]), "says otherwise than the units (parts)"),
        (lambda encoded: (encoded / "manifest.json").unlink(), "manifest.json is missing"),
        (lambda encoded: edit(encoded / "units" / "000002.json", postings=9, impacts=9), "counts (postings, impacts)"),
        (lambda encoded: edit(encoded / "units" / "000002.json", empty_vectors=9), "counts (empty_vectors)"),
        (lambda encoded: edit(encoded / "units" / "000002.json", unit=3), "000002.json is the record of unit 3"),
        (
            lambda encoded: (encoded / "units" / "000007.json").write_text(
                (encoded / "units" / "000004.json").read_text().replace('"unit": 4', '"unit": 7')
            ),
            "000007.json is of a unit beyond the corpus",
        ),
    ],
)
def test_check_finds(encoded, capsys, damage, says):
    damage(encoded)
    status, said = check(encoded, capsys)
    assert status == 1 and says in said and "exactly once" not in said


def test_a_gzipped_file_whose_record_is_lost_is_only_missing(encode, tmp_path, capsys):
    assert encode(tmp_path / "out", "--gzip")[0] == 0
    (tmp_path / "out" / "units" / "000003.json").unlink()
    status, said = check(tmp_path / "out", capsys)
    assert status == 1 and "1 of 5 units are missing (3)" in said and "which no unit wrote" not in said


def test_check_finds_another_corpus(encoded, source, tmp_path, capsys):
    other = write_corpus(tmp_path / "other.jsonl", DOCUMENTS, seed=1)
    status, said = check(encoded, capsys, "--corpus", other)
    assert status == 1 and "is not the corpus that was encoded" in said
    assert main(["encode", "check", str(tmp_path)]) == 2
    assert "is not an encoded corpus" in capsys.readouterr().err


# ---- Topics -------------------------------------------------------------------------------------------------------------


def test_topics_carry_the_scale_of_the_corpus(encode, bert, tmp_path, capsys):
    topics = tmp_path / "topics.tsv"
    topics.write_text("1\twind tunnel\n007\theat flow gas\n")
    assert encode(tmp_path / "out", "--quantizer", "x100")[0] == 0
    assert (
        main(["encode", "topics", str(topics), "--like", str(tmp_path / "out"), "--output", str(tmp_path / "t.json")])
        == 0
    )
    found = json.loads((tmp_path / "t.json").read_text())
    assert list(found) == ["1", "007"]
    one = QueryTexts(bert)
    for name, text in (("1", "wind tunnel"), ("007", "heat flow gas")):
        ids, values = one.weights(text)
        words = found[name]["title"].split()
        expected = dict(
            zip(one.terms[ids].tolist(), np.rint(values.astype(np.float64) * 100).astype(int).tolist(), strict=True)
        )
        assert {word: words.count(word) for word in words} == {
            term: impact for term, impact in expected.items() if impact
        }
    said = json.loads((tmp_path / "t.json.manifest.json").read_text())
    assert said["quantizer"]["quant_range"] == 100 and said["topics"] == 2 and said["max_length"] == 32
    capsys.readouterr()

    def topics_of(*more: str) -> tuple[int, str]:
        return main(["encode", "topics", str(topics), *more]), capsys.readouterr().err

    output = str(tmp_path / "u.json")
    assert topics_of("--model", bert, "--output", output, "--top-terms", "2")[0] == 0
    pruned = json.loads(Path(output).read_text())
    assert all(len(set(topic["title"].split())) <= 2 for topic in pruned.values())
    (tmp_path / "mine.json").write_text("{}")
    for more, says in (
        (("--output", output), "a model is needed"),
        (("--model", bert, "--output", str(tmp_path / "t.tsv")), "ends in .json"),
        (("--model", bert, "--output", str(tmp_path / "mine.json")), "was not written by us"),
        (("--model", bert, "--output", output, "--quantizer", "calibrated"), "--like for a calibrated one"),
        (("--like", str(tmp_path / "out"), "--output", output, "--quantizer", "pyserini"), "was made by x100"),
        (("--like", str(tmp_path), "--output", output), "is not an encoded corpus"),
    ):
        status, said = topics_of(*more)
        assert status == 2 and says in errors(said)[0], said


def test_topics_of_another_model_are_refused(encode, roberta, tmp_path, capsys):
    (tmp_path / "topics.tsv").write_text("1\twind tunnel\n")
    encode(tmp_path / "out")
    words = [
        "encode",
        "topics",
        tmp_path / "topics.tsv",
        "--like",
        tmp_path / "out",
        "--model",
        roberta,
        "--output",
        tmp_path / "t.json",
    ]
    assert main(list(map(str, words))) == 2
    assert "is not the model that encoded" in capsys.readouterr().err
