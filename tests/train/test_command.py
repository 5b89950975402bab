"""``python -m pyserini_rescale train`` as users type it: dry runs, and one clear line for what cannot be done."""

import json

import pytest

from pyserini_rescale.cli import main
from pyserini_rescale.train import launch
from pyserini_rescale.train.config import resolve


def test_dry_run_of_the_papers_recipe(capsys):
    assert main(["train", "--config", "table2:modernbert.k16", "--dry-run"]) == 0
    out = capsys.readouterr().out
    for part in ("global batch", "512", "steps", "982", "warm-up", "99", "lambda ramp", "328", "candidates", "128"):
        assert part in out
    assert out.rstrip().endswith(
        "deepspeed --num_gpus 8 --no_local_rank --module pyserini_rescale train --config table2:modernbert.k16"
    )


def test_dry_run_as_json_repeats_the_options_in_the_command(capsys):
    options = ["--set", "batch.world_size=2", "--set", "compute.device=cpu", "--on-collapse", "stop", "--skip-bad"]
    assert main(["train", "--config", "paper", *options, "--triples", "a b.jsonl", "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schedule"] is None  # local files: the number of rows is not known
    assert found["config"]["data"]["skip_bad"] is True
    assert found["config"]["data"]["files"] == ["a b.jsonl"]
    assert found["command"][:5] == ["torchrun", "--standalone", "--nproc-per-node", "2", "-m"]
    again = found["command"][found["command"].index("train") :]
    assert main([*again, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found


def test_dry_run_counts_local_rows_and_says_what_it_knows_without_them(capsys, triples):
    assert main(["train", "--config", "smoke", "--triples", triples, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "48  lines of data.files" in out and "lambda ramp" in out
    assert main(["train", "--config", "smoke", "--triples", "/nowhere.jsonl", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "not there" in out and "global batch          8" in out and "candidates           16" in out


def test_dry_run_needs_no_torch(tmp_path):
    import subprocess
    import sys

    code = (
        "import sys\nfrom pyserini_rescale.cli import main\n"
        "status = main(['train', '--config', 'table2:bert.k1', '--dry-run'])\n"
        "sys.exit(status or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_list_names_every_shipped_configuration(capsys):
    assert main(["train", "list"]) == 0
    names = capsys.readouterr().out.split()
    assert {"paper", "smoke", "table2:roberta.k4", "inflated:k16"} <= set(names)
    assert "zero1" not in names


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--config FILE is needed"),
        (["--config", "paper", "--json"], "--json goes with --dry-run"),
        (["--config", "nowhere"], "neither a file nor a shipped one"),
        (["--config", "table2"], "holds 19 variants"),
        (["--config", "paper", "--set", "batch.world_size=1"], "PyTorch sees no GPU here"),
        (["--config", "paper"], "1 process(es) run, batch.world_size is 8"),
        (["--config", "smoke", "--backbone", "/nowhere", "--triples", "TRIPLES"], "there is no model folder"),
        (["--config", "smoke", "--backbone", "BACKBONE", "--triples", "/nowhere.jsonl"], "nowhere.jsonl"),
        (["--config", "smoke", "--backbone", "BACKBONE", "--triples", "TRIPLES", "--set", "text.document_length=33"],
         "text.document_length 33 is beyond the 32 positions"),
        (["--config", "smoke", "--backbone", "BACKBONE", "--triples", "TRIPLES", "--set", "batch.per_device=100"],
         "fewer than one global batch of 100"),
        (["--config", "smoke", "--backbone", "BACKBONE", "--triples", "TRIPLES", "--set", "text.query_length=2",
          "--set", "text.document_length=32"], "leaves no room for text"),
        (["--config", "smoke", "--backbone", "BACKBONE", "--triples", "TRIPLES", "--set", "rescale.scope=balanced",
          "--set", "rescale.factor=2", "--set", "text.prefix_space=true"], "has no prefix space"),
    ],
)  # fmt: skip
def test_one_line_for_what_cannot_be_done(capsys, tmp_path, backbone, triples, options, message):
    import torch

    if "GPU" in message and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    put = {"BACKBONE": backbone, "TRIPLES": triples}
    output = tmp_path / "run"
    status = main(["train", *[put.get(word, word) for word in options], "--output", str(output)])
    error = capsys.readouterr().err
    last = [line for line in error.splitlines() if line.startswith("error:")]
    assert status == 2
    assert len(last) == 1 and message in last[0]
    assert not output.exists(), "nothing is left behind"


def test_an_output_that_is_a_file_or_holds_other_things(capsys, tmp_path, backbone, triples):
    common = ["train", "--config", "smoke", "--backbone", backbone, "--triples", triples]
    (tmp_path / "file").write_text("mine")
    assert main([*common, "--output", str(tmp_path / "file")]) == 2
    assert "is a file" in capsys.readouterr().err
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").write_text("mine")
    for more in ([], ["--resume"]):
        assert main([*common, "--output", str(tmp_path / "folder"), *more]) == 2
        assert "holds other things" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("changes", "start"),
    [
        (["batch.world_size=1"], ["python", "-m", "pyserini_rescale", "train"]),
        (["batch.world_size=4"], ["deepspeed", "--num_gpus", "4", "--no_local_rank", "--module", "pyserini_rescale"]),
        (["batch.world_size=4", "compute.deepspeed=null"], ["torchrun", "--standalone", "--nproc-per-node", "4", "-m"]),
        (["batch.world_size=2", "compute.device=cpu"], ["torchrun", "--standalone", "--nproc-per-node", "2", "-m"]),
    ],
)
def test_launch_commands(changes, start):
    assert launch.command(resolve("paper", changes), ["--config", "paper"])[: len(start)] == start


def test_world_size_comes_from_the_launcher():
    assert launch.world_size({}) == 1
    assert launch.world_size({"WORLD_SIZE": "8"}) == 8
    with pytest.raises(Exception, match="WORLD_SIZE is 'x'"):
        launch.world_size({"WORLD_SIZE": "x"})


def run_script(*words, **environment):
    import os
    import subprocess
    import sys
    from pathlib import Path

    script = Path(__file__).parents[2] / "scripts" / "train_8gpu.sh"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", script, *words], capture_output=True, text=True, check=False, cwd=script.parents[1],
        env={**os.environ, "PATH": path, "DRY_RUN": "1", **environment},
    )  # fmt: skip


def test_the_8_gpu_script_runs_what_the_dry_run_prints(tmp_path):
    done = run_script("table2:roberta.k4", "--set", "seed=3")
    assert done.returncode == 0, done.stderr
    last = done.stdout.strip().splitlines()[-1]
    assert " --num_gpus 8 " in last and last.endswith("--config table2:roberta.k4 --set seed=3")
    hosts = tmp_path / "hosts"
    hosts.write_text("node1 slots=4\nnode2 slots=4\n")
    last = run_script("table2:roberta.k4", HOSTFILE=str(hosts)).stdout.splitlines()[-1]
    assert last.startswith(f"deepspeed --hostfile {hosts} --no_local_rank --module pyserini_rescale train")
    assert run_script("table2:roberta.k4", HOSTFILE="/nowhere").returncode == 2
    assert run_script("nowhere").returncode == 2
    assert "bash scripts/train_8gpu.sh" in run_script("--help").stdout
