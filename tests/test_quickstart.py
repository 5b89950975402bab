"""The quickstart: its collection, its backbone, and all of it once on a few documents."""

import json

import pytest

from pyserini_rescale.cli import main
from pyserini_rescale.errors import ConfigError, DataError
from pyserini_rescale.quickstart import docstrings, pipeline
from pyserini_rescale.quickstart.docstrings import Passage, as_collection, read_passages

SOURCE = '''\
"""A module about nothing at all. It has a second sentence of some words."""

class Box:
    """Holds a thing or two.

    The rest of it comes after an empty line and is long enough.
    """

    def open(self):
        """Open the box very slowly
        over two lines. Then look inside of the box itself."""

    def close(self):
        """Too short. But this part is long enough, is it not?"""

    async def shake(self):
        """Shake it with both hands. Stop."""

def twin():
    """Another first sentence of words. It has a second sentence of some words."""
'''


def library(root, copies: int = 0) -> None:
    """A library of one module that is read, and others that are not; and ``copies`` more passages."""
    (root / "pkg" / "test").mkdir(parents=True)
    (root / "pkg" / "__init__.py").write_text(SOURCE)
    (root / "pkg" / "test" / "left_out.py").write_text('"""This is not to be read. No word of it may be seen."""')
    (root / "broken.py").write_text("def (:")
    extra = [
        f'def f{n}():\n    """Return the number {n} times. The number is {n} and not {n + 1}."""\n'
        for n in range(copies)
    ]
    (root / "pkg" / "extra.py").write_text("\n".join(extra))


def test_passages_are_first_sentences_and_rests(tmp_path):
    library(tmp_path, copies=120)
    found = [passage for passage in read_passages(tmp_path) if passage.id.split(".")[1:2] != ["extra"]]
    assert found == [
        Passage("pkg", "A module about nothing at all.", "It has a second sentence of some words."),
        Passage("pkg.Box", "Holds a thing or two.", "The rest of it comes after an empty line and is long enough."),
        Passage("pkg.Box.open", "Open the box very slowly over two lines.", "Then look inside of the box itself."),
    ]


def test_a_python_without_its_sources_is_refused(tmp_path):
    library(tmp_path)
    with pytest.raises(DataError, match="only 3 docstrings"):
        read_passages(tmp_path)


@pytest.mark.slow
def test_the_library_of_this_python_is_large_enough():
    found = read_passages()
    assert len(found) >= 2500
    assert len({passage.id for passage in found}) == len({passage.text for passage in found}) == len(found)
    assert not any(character.isspace() for passage in found for character in passage.id)


def test_equal_queries_share_their_documents():
    passages = [
        Passage("a", "Emit a record.", "one"),
        Passage("b", "Other.", "two"),
        Passage("c", "Emit a record.", "three"),
    ]
    found = as_collection(passages, queries=2)
    assert list(found.queries()) == [("a", "Emit a record."), ("b", "Other.")]
    assert list(found.judgements()) == [("a", "a", 1), ("b", "b", 1), ("a", "c", 1)]
    assert list(found.documents())[1] == ("b", "", "two")


TEXTS = [f"Return the {thing} of a {place}, or raise an error number {n}." for n, (thing, place) in enumerate(
    [("length", "list"), ("size", "file"), ("name", "thread"), ("value", "mapping"), ("colour", "wall")] * 4
)]  # fmt: skip


def test_the_backbone_answers_with_its_input_and_has_a_large_head():
    import torch

    from pyserini_rescale.quickstart import backbone

    model, tokenizer = backbone.make(TEXTS)
    weight = model.get_output_embeddings().weight
    assert weight is model.get_input_embeddings().weight
    assert weight.norm(dim=1).mean().item() == pytest.approx(backbone.ROW_NORM, rel=1e-4)
    ids = tokenizer(TEXTS[0], return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        logits = model(input_ids=ids).logits[0]
    words = slice(1, -1)
    rare = logits[words].gather(1, ids[0, words].unsqueeze(1)).squeeze(1) > 10
    assert rare.sum() >= 3 and (logits[words].argmax(dim=1) == ids[0, words])[rare].all()


def test_the_backbone_is_repeatable():
    from pyserini_rescale.quickstart import backbone

    (one, first), (two, second) = backbone.make(TEXTS), backbone.make(TEXTS)
    assert first.get_vocab() == second.get_vocab()
    assert all((a == b).all() for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True))


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "model").mkdir()
    with pytest.raises(ConfigError, match="holds other things"):
        pipeline.run(pipeline.Options(work=tmp_path), print)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("options", [["--k", "0"], ["--k", "nan"], ["--threads", "0"], ["--documents", "3"]])
def test_bad_options_are_one_line(tmp_path, capsys, monkeypatch, options):
    monkeypatch.setattr(pipeline, "read_passages", lambda: [])
    assert main(["quickstart", "--work", str(tmp_path / "w"), *options]) == 2
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith("error: ")


@pytest.mark.slow
@pytest.mark.jvm
def test_all_of_it_on_a_few_documents_twice(tmp_path, capsys, monkeypatch):
    library(tmp_path / "library", copies=300)
    monkeypatch.setattr(docstrings.sysconfig, "get_path", lambda name: str(tmp_path / "library"))
    work = tmp_path / "encoder"
    assert main(["quickstart", "--work", str(work), "--documents", "150", "--threads", "1"]) == 0
    out = capsys.readouterr().out
    for part in (
        "k = 1, in memory",
        "k = 16, in memory",
        "k = 16, Pyserini",
        "query: ",
        "What happened",
        str(work),
        "Next:",
    ):
        assert part in out
    result = json.loads((work / "quickstart.json").read_text())
    assert result["measures"] == pytest.approx(
        result["after"]["measures"], abs=1e-6
    )  # Lucene's scores are the dot products
    assert result["before"]["document_terms"] > 4 * result["after"]["document_terms"]
    assert result["after"]["measures"]["RR@10"] > result["before"]["measures"]["RR@10"]
    assert result["statistics"]["problems"] == [] and result["counts"]["documents"] == 150
    assert json.loads((work / "model" / "config.json").read_text())["splade_rescale"]["k"] == 16
    assert main(["quickstart", "--work", str(work), "--documents", "150", "--threads", "1"]) == 0
    assert capsys.readouterr().err.count("up to date") == 4
