"""Memory while a corpus is encoded, by scripts/benchmarks/encode_memory.py: 20,000 documents here, a million where asked for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "benchmarks" / "encode_memory.py"
SWITCH = "PYSERINI_RESCALE_MILLION"
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is read from /proc")


def run(documents: int, work: Path) -> subprocess.CompletedProcess:
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(SCRIPT.parents[2])}
    return subprocess.run(
        [sys.executable, SCRIPT, "--documents", str(documents), "--work", work],
        capture_output=True,
        text=True,
        env=environ,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "documents",
    [
        20_000,
        pytest.param(
            1_000_000,
            marks=pytest.mark.skipif(not os.environ.get(SWITCH), reason=f"takes long: {SWITCH}=1 asks for it"),
        ),
    ],
)
def test_memory_does_not_grow_with_the_corpus(documents, tmp_path):
    done = run(documents, tmp_path / "work")
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert f"{documents:,} documents" in done.stdout
