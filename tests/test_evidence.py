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


@pytest.mark.parametrize("action", ["expected", "report"])
@pytest.mark.parametrize("content", [None, "{", "[]", '{"setting": "k1"}'])
def test_without_results_nothing_is_written_over(action: str, content: str | None, tmp_path: Path) -> None:
    output = tmp_path / "out"
    if action == "expected":
        output.write_text("as it was")
    if content is not None:
        (tmp_path / "results").mkdir()
        (tmp_path / "results" / "docstrings.bert.k1.s1.json").write_text(content)
    script = str(ROOT / "scripts" / "evidence.py")
    command = [sys.executable, script, action, "--work", str(tmp_path), "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and str(tmp_path / "results") in done.stderr
    assert output.read_text() == "as it was" if action == "expected" else not output.exists()
