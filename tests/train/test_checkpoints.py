"""Names of checkpoints: what counts as whole, what is picked, what is removed."""

import json

import pytest

from pyserini_rescale.train import checkpoints


def make(folder, step, state=None):
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    text = json.dumps({"global_step": step}) if state is None else state
    (path / "trainer_state.json").write_text(text)
    sizes = {"trainer_state.json": len(text)}
    (path / checkpoints.MANIFEST).write_text(json.dumps({"sizes": sizes}))
    return path


def test_the_newest_by_number_is_picked(tmp_path):
    assert checkpoints.last(tmp_path) is None
    for step in (9, 100, 20):
        make(tmp_path, step)
    make(tmp_path / checkpoints.UNFINISHED, 200)
    (tmp_path / "checkpoint-best").mkdir()
    (tmp_path / "checkpoint-300").write_text("a file")
    assert checkpoints.last(tmp_path) == (100, tmp_path / "checkpoint-100")


@pytest.mark.parametrize("state", ["", "{}", "[]", '{"global_step": 4}', "{", "[" * 100_000])
def test_a_damaged_one_is_passed_over_with_a_line(tmp_path, state):
    make(tmp_path, 3)
    make(tmp_path, 5, state)
    said = []
    assert checkpoints.last(tmp_path, said.append) == (3, tmp_path / "checkpoint-3")
    assert len(said) == 1 and said[0].startswith("checkpoint-5 is passed over: ")


def test_every_file_has_to_be_there_in_its_size(tmp_path):
    unfinished = tmp_path / checkpoints.UNFINISHED
    for step in (3, 6, 9):
        (make(unfinished, step) / "deep").mkdir()
        (unfinished / f"checkpoint-{step}" / "deep" / "optimizer.pt").write_bytes(b"12345")
        checkpoints.publish(unfinished, tmp_path)
    assert checkpoints.last(tmp_path)[0] == 9
    (tmp_path / "checkpoint-9" / "deep" / "optimizer.pt").write_bytes(b"1234")
    assert checkpoints.last(tmp_path)[0] == 6
    (tmp_path / "checkpoint-6" / "deep" / "optimizer.pt").unlink()
    assert checkpoints.last(tmp_path)[0] == 3
    (tmp_path / "checkpoint-3" / checkpoints.MANIFEST).unlink()
    assert checkpoints.last(tmp_path) is None


def test_publish_renames_and_prune_keeps_the_newest(tmp_path):
    for step in (2, 4):
        make(tmp_path, step)
    unfinished = tmp_path / checkpoints.UNFINISHED
    (make(unfinished, 6) / "deep").mkdir()
    make(tmp_path, 6).joinpath("old").write_text("of an earlier run")
    checkpoints.publish(unfinished, tmp_path)
    assert not unfinished.exists()
    assert not (tmp_path / "checkpoint-6" / "old").exists()
    checkpoints.prune(tmp_path, 2)
    assert [step for step, _ in checkpoints.found(tmp_path)] == [4, 6]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-4", "checkpoint-6"]
