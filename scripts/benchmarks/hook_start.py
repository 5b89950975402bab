"""What the start-up hook costs an interpreter: median start time with it and without, interleaved.

    python scripts/benchmarks/hook_start.py [--runs 50] [--json]

Both kinds of start are of the same interpreter with the package installed. The two are told apart by a copy of
site-packages' .pth files: once all of them, once all but ours, each read by ``site.addsitedir`` in an isolated start, so
that nothing else differs. Imports of ours are served from compiled files, as pip installs them.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyserini_rescale

HOOK = "pyserini_rescale_hook.pth"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=50, help="counted starts of each kind (default 50)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    package = Path(pyserini_rescale.__file__).parent
    with tempfile.TemporaryDirectory() as scratch:
        folders = {}
        for kind in ("with", "without"):
            folder = folders[kind] = Path(scratch, kind)
            folder.mkdir()
            shutil.copytree(package, folder / "pyserini_rescale", ignore=shutil.ignore_patterns("__pycache__"))
            if kind == "with":
                shutil.copy(package.parent / HOOK, folder)
            subprocess.run([sys.executable, "-m", "compileall", "-q", folder], check=True)
        times: dict[str, list[float]] = {kind: [] for kind in folders}
        environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")}
        for run in range(args.runs + 3):
            for kind, folder in folders.items():
                # -I -S: nothing but what addsitedir then reads; that is what `site` does with site-packages.
                program = f"import site; site.addsitedir({str(folder)!r})"
                start = time.perf_counter()
                subprocess.run([sys.executable, "-I", "-S", "-c", program], check=True, env=environment)
                if run >= 3:
                    times[kind].append(1000 * (time.perf_counter() - start))
    medians = {kind: statistics.median(values) for kind, values in times.items()}
    extra = medians["with"] - medians["without"]
    result = {
        "extra_ms": round(extra, 3),
        "with_ms": round(medians["with"], 2),
        "without_ms": round(medians["without"], 2),
        "runs": args.runs,
        "python": platform.python_version(),
        "machine": platform.processor() or platform.machine(),
    }
    if args.json:
        print(json.dumps(result, indent=2))
    else:
        for name, value in result.items():
            print(f"{name:<12} {value}")


if __name__ == "__main__":
    main()
