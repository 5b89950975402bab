"""``python -m tests.encode.forks MODEL CORPUS FOLDER KILLS``: the encode command in children, killed and starved as told.

torch and transformers are imported once; every run of the command is a child forked from here, in a process group of its own,
with the environment that srun gives. Prints one JSON object of what was found, for test_corpus_killed.py to judge.
"""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

from pyserini_rescale.cli import main
from pyserini_rescale.encode import base, corpus  # noqa: F401, base is what takes the time

MODEL, CORPUS, FOLDER = sys.argv[1], sys.argv[2], Path(sys.argv[3])
UNIT = 20


def start(arguments: list, number: int = 0, count: int = 1, before=None) -> int:
    """Fork a child that runs the command as process ``number`` of ``count``; return its pid. Its stderr is LOG.pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.environ.update(SLURM_PROCID=str(number), SLURM_NTASKS=str(count), SLURM_LOCALID=str(number))
        log = os.open(FOLDER / f"log.{os.getpid()}", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if before is not None:
            before()
        status = main(list(map(str, arguments)))
        sys.stdout.flush()
        os._exit(status)
    except BaseException as error:  # a child must not go on as the parent
        os.write(2, f"Traceback: {error!r}".encode())
        os._exit(99)


def wait(pids: list[int]) -> list[dict]:
    found = []
    for pid in pids:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        log = FOLDER / f"log.{pid}"
        found.append({"status": status, "log": log.read_text() if log.exists() else ""})
    return found


def command(output: Path, *more) -> list:
    return [
        "encode",
        "--corpus",
        CORPUS,
        "--model",
        MODEL,
        "--output",
        output,
        "--device",
        "cpu",
        "--unit",
        UNIT,
        *more,
    ]


def run(output: Path, *more, count: int = 1, before=None) -> list[dict]:
    return wait([start(command(output, *more), number, count, before) for number in range(count)])


def vectors(output: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (output / "vectors").iterdir()} if output.exists() else {}


def records(output: Path) -> list[str]:
    for path in (output / "units").iterdir():
        json.loads(path.read_text())
    return sorted(path.name for path in (output / "units").iterdir())


def counted(events: int, count_file: Path | None = None):
    """From the settings on, count what the interpreter does, and SIGKILL the whole group at event number ``events``."""

    def before() -> None:
        plain = corpus._settings

        def settings(*given):
            seen = 0

            def profile(frame, event, argument):
                nonlocal seen
                seen += 1
                if seen == events:
                    os.killpg(os.getpgid(0), signal.SIGKILL)

            sys.setprofile(profile)
            if count_file is not None:
                finish = corpus.Folder.finish

                def finished(*given):
                    sys.setprofile(None)
                    count_file.write_text(str(seen))
                    return finish(*given)

                corpus.Folder.finish = finished
            return plain(*given)

        corpus._settings = settings

    return before


def killed(kills: int) -> dict:
    """Kill at random moments, resume each time with 1, 2 and 3 processes in turn, then to the end; compare.

    Where a run ends before it is killed often enough, another one is begun.
    """
    chance = random.Random(kills)
    plain, output = FOLDER / "undisturbed", FOLDER / "killed"
    first = run(plain, before=counted(-1, FOLDER / "events"))
    total = int((FOLDER / "events").read_text())
    wanted, rounds, done = vectors(plain), [], []
    turn = 0
    while len(rounds) < kills:
        count = 1 + turn % 3
        events = chance.randrange(1, int(total * 0.6 / count))
        killer = chance.randrange(count)
        group = []
        for number in range(count):
            before = counted(events) if number == killer else None
            group.append(start(command(output, "--resume"), number, count, lambda act=before: _grouped(act)))
        for pid in group:
            try:
                os.setpgid(pid, group[0])
            except (ProcessLookupError, PermissionError):
                pass
        (FOLDER / "go").touch()
        found = wait(group)
        (FOLDER / "go").unlink()
        turn += 1
        if found[killer]["status"] != -signal.SIGKILL:
            if any(one["status"] for one in found) or vectors(output) != wanted:
                return {"first": found}
            output, done = FOLDER / f"killed-{turn}", []
            continue
        there, now = vectors(output), records(output) if (output / "units").exists() else []
        rounds.append({
            "processes": count,
            "statuses": [one["status"] for one in found],
            "whole": all(wanted[name] == data for name, data in there.items()),
            "units": len(now),
            "lost": sorted(set(done) - set(now)),
        })  # fmt: skip
        done = now
    last = run(output, "--resume", count=3)
    again = run(output, "--resume")
    return {
        "first": first,
        "rounds": rounds,
        "last": last,
        "again": again,
        "equal": vectors(output) == wanted,
        "manifests_equal": (output / "manifest.json").read_bytes() == (plain / "manifest.json").read_bytes(),
        "units": len(wanted),
        "check": wait([start(["encode", "check", output])])[0],
        "entries": sorted(path.name for path in output.iterdir()),
    }


def _grouped(act) -> None:
    """In a child: wait until all of its group are in it, then do what it was told."""
    while not (FOLDER / "go").exists():
        time.sleep(0.005)
    if act is not None:
        act()


STEPS = ("link settings.json", "fsync part-", "replace part-", "fsync 0", "replace 0", "replace manifest")


def killed_at_steps() -> dict:
    """SIGKILL before and after every step by which a file gets its name."""
    found = {}
    for when in ("before", "after"):
        for step in STEPS:
            output = FOLDER / f"{when}-{step}".replace(" ", "-")
            one = run(output, "--gzip", before=lambda step=step, when=when: _kill_at(step, when))[0]
            there = vectors(output)
            done = run(output, "--gzip", "--resume")[0]
            found[f"{when} {step}"] = {
                "status": one["status"],
                "there": {name: data == vectors(output)[name] for name, data in there.items()},
                "resumed": done,
                "check": wait([start(["encode", "check", output])])[0]["status"],
                "names": sorted(vectors(output)),
            }
    return found


def _kill_at(step: str, when: str) -> None:
    action, name = step.split(" ")
    plain = getattr(os, action)

    def deadly(*given, **named):
        target = os.readlink(f"/proc/self/fd/{given[0]}").split("~")[-1] if action == "fsync" else Path(given[1]).name
        if not target.startswith(name):
            return plain(*given, **named)
        if when == "after":
            plain(*given, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(os, action, deadly)


def full_disk() -> dict:
    """A disk that is full after some units; then it has room. A small tmpfs, or a limit on the size of files without one."""
    place = FOLDER / "disk"
    place.mkdir()
    size = sum(path.stat().st_size for path in (FOLDER / "undisturbed" / "vectors").iterdir())
    pages = (size // 2) // 4096
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={pages * 4096}", "tmpfs", place], capture_output=True, check=False
    )
    before = None
    if mounted.returncode:
        largest = sorted(path.stat().st_size for path in (FOLDER / "undisturbed" / "vectors").iterdir())[-2]

        def before() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))

    try:
        output = place / "out"
        full = run(output, before=before)[0]
        there, wanted = vectors(output), vectors(FOLDER / "undisturbed")
        left = sorted(path.name for path in (output / "unfinished").iterdir())
        done = records(output)
        checked = wait([start(["encode", "check", output])])[0]
        if not mounted.returncode:
            subprocess.run(["mount", "-o", f"remount,size={8 * size}", place], check=True, capture_output=True)
        resumed = run(output, "--resume")[0]
        return {
            "tmpfs": not mounted.returncode,
            "full": full,
            "units": len(done),
            "whole": all(wanted[name] == data for name, data in there.items()),
            "unfinished": left,
            "check_of_half": checked,
            "resumed": resumed,
            "equal": vectors(output) == wanted,
        }
    finally:
        if not mounted.returncode:
            subprocess.run(["umount", place], check=True)


if __name__ == "__main__":
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    what = sys.argv[4:]
    facts = {"killed": killed(int(what[0]))}
    if "more" in what:
        facts["steps"] = killed_at_steps()
        facts["full_disk"] = full_disk()
    print(json.dumps(facts))
