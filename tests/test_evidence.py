"""What the pages and the regressions say of the evidence is what the results say."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "evidence"


@pytest.mark.parametrize(
    ("action", "output", "committed"),
    [
        pytest.param("expected", "mini.yaml", ROOT / "regressions" / "models" / "mini.yaml", id="expected values"),
        pytest.param("report", "tables.md", RESULTS / "tables.md", id="tables"),
    ],
)
def test_what_is_written_from_the_results_is_current(action: str, output: str, committed: Path, tmp_path: Path) -> None:
    place = tmp_path if action == "report" else tmp_path / output
    command = [
        sys.executable,
        str(ROOT / "scripts" / "evidence.py"),
        action,
        "--work",
        str(RESULTS),
        "--output",
        str(place),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert (tmp_path / output).read_text(encoding="utf-8") == committed.read_text(encoding="utf-8"), (
        f"run scripts/evidence.py {action} --work docs/evidence --output {committed.relative_to(ROOT)}"
    )
