"""The machine: devices, bf16, cores and memory, network, and the folders that things are kept in."""

import ast
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyserini_rescale.doctor.child import ask
from pyserini_rescale.doctor.lines import OK, PROBLEM, WARNING, Line
from pyserini_rescale.doctor.packages import pyserini_folder
from pyserini_rescale.errors import one_line
from pyserini_rescale.files import exists
from pyserini_rescale.plugin.patches import OFFLINE, TRUE

LITTLE_SPACE = 5e9
"""Bytes on a disk below which a warning says so: a backbone of base size takes half a gigabyte, a collection several."""

LITTLE_MEMORY = 2e9
"""Bytes of memory, the same: PyTorch, a small model and a JVM take over one gigabyte together."""

_SECONDS = 180  # for PyTorch to be imported from a cold disk
_NETWORK_SECONDS = 4
_DEVICES = """
import torch
gpus = []
for number in range(torch.cuda.device_count()):
    try:
        one = torch.ones(64, 64, device=f"cuda:{number}")
        assert (one @ one).sum().item() == 64 ** 3, "64 x 64 ones times themselves are not what they should be"
        free, whole = torch.cuda.mem_get_info(number)
        gpus.append([torch.cuda.get_device_name(number), free, whole, ""])
    except Exception as error:
        gpus.append([f"cuda:{number}", 0, 0, " ".join(f"{type(error).__name__}: {error}".split())])
answer({"cuda": torch.version.cuda or torch.version.hip, "gpus": gpus, "mps": torch.backends.mps.is_available(),
        "threads": torch.get_num_threads()})
"""
_BF16 = """
import torch
from pyserini_rescale.encode.base import has_bf16
names = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
answer({name: has_bf16(torch.device(name)) for name in names})
"""
_NETWORK = """
import os, urllib.error, urllib.request
try:
    urllib.request.urlopen(urllib.request.Request({address!r}, method="HEAD"), timeout={seconds})
except urllib.error.HTTPError:
    pass
answer(True)
"""


def device() -> Line:
    """What PyTorch computes on; each GPU multiplies a small matrix."""
    outcome = ask(_DEVICES, _SECONDS)
    if not outcome.answers:
        return Line(
            "device", PROBLEM, f"PyTorch cannot be used: {outcome.failure}", "`pip install --force-reinstall torch`"
        )
    found = outcome.answers[0]
    broken = [f"{name}: {failure}" for name, _, _, failure in found["gpus"] if failure]
    if broken:
        cure = "install the torch that fits its driver (https://pytorch.org), or type --device cpu"
        return Line("device", PROBLEM, "; ".join(broken), cure)
    cpu = f"the CPU, {found['threads']} threads"
    if found["gpus"]:
        shown = [
            f"cuda:{n} {name}, {_gb(free)} of {_gb(whole)} free"
            for n, (name, free, whole, _) in enumerate(found["gpus"])
        ]
        return Line("device", OK, "; ".join(shown))
    if found["mps"]:
        return Line("device", OK, f"Apple GPU (mps), and {cpu}")
    if Path("/proc/driver/nvidia/version").exists():
        why = f"this torch is made for CUDA {found['cuda']}" if found["cuda"] else "this torch is made without CUDA"
        cure = "install the torch that fits the driver (https://pytorch.org); is CUDA_VISIBLE_DEVICES set?"
        return Line("device", WARNING, f"{cpu}; NVIDIA's driver is there, {why} and sees no GPU", cure)
    return Line("device", OK, f"{cpu}; no GPU")


def bf16() -> Line:
    """Whether the head can be multiplied in bf16 (PYSERINI_RESCALE_HEAD), and GPUs be trained with it."""
    outcome = ask(_BF16, _SECONDS)
    if not outcome.answers:
        return Line("bf16", PROBLEM, f"it could not be looked at: {outcome.failure}", "see the lines above")
    with_it = [name for name, has in outcome.answers[0].items() if has]
    without = [name for name, has in outcome.answers[0].items() if not has]
    found = f"instructions for it: {', '.join(with_it) or 'none'}" + (
        f"; not: {', '.join(without)}" if with_it and without else ""
    )
    if any(name.startswith("cuda") for name in without):
        return Line("bf16", WARNING, found, "train with --set compute.precision=fp32")
    return Line("bf16", OK, found)


def network() -> Line:
    """Whether models and collections can be fetched; asked for a few seconds at most, and not at all where told so."""
    name = "network"
    told = next((variable for variable in OFFLINE if os.environ.get(variable)), None)
    if told is not None and os.environ[told].lower() in TRUE:
        return Line(name, OK, f"{told}={os.environ[told]}: nothing is fetched, models and collections must lie here")
    address = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    # Looking a name up takes no time-out, so that the process has one too.
    outcome = ask(_NETWORK.format(address=address, seconds=_NETWORK_SECONDS), 2 * _NETWORK_SECONDS)
    if outcome.answers:
        return Line(name, OK, f"{address} answers")
    found = f"{address} does not answer ({outcome.failure}): models and collections must lie here"
    return Line(name, WARNING, found, "export HF_HUB_OFFLINE=1, so that nothing waits for it")


def cores_and_memory() -> Line:
    """What this process may use of both."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free = _available(Path("/proc/meminfo"))
    limit = _limit(Path("/sys/fs/cgroup"))
    found = f"{cores} cores, {_gb(whole)} of memory"
    if limit is not None and limit[0] < whole:
        whole, left = limit
        free = left if free is None else min(free, left)
        found += f", {_gb(whole)} in this container"
    if free is None:
        return Line("cores, memory", OK, found)
    found += f", {_gb(free)} free"
    if free < LITTLE_MEMORY:
        return Line("cores, memory", WARNING, found, "end other programs, or type smaller batches")
    return Line("cores, memory", OK, found)


def _available(meminfo: Path) -> int | None:
    """Return the bytes that Linux would give to a program, None where it does not say."""
    try:
        for line in meminfo.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _limit(cgroup: Path) -> tuple[int, int] | None:
    """Return (bytes a container may use, bytes it has left), None where there is no limit."""
    try:
        most = int((cgroup / "memory.max").read_text(encoding="ascii"))
        return most, most - int((cgroup / "memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):  # "max" is no number
        return None


def hugging_face_cache(environ: Mapping[str, str]) -> str:
    """Return where models of the Hub are kept, as huggingface_hub has it."""
    home = os.path.join(environ.get("XDG_CACHE_HOME", os.path.join("~", ".cache")), "huggingface")
    kept = os.path.join(environ.get("HF_HOME", home), "hub")
    kept = environ.get("HF_HUB_CACHE", environ.get("HUGGINGFACE_HUB_CACHE", kept))
    return os.path.expandvars(os.path.expanduser(kept))


def data_sets_cache(environ: Mapping[str, str]) -> str:
    """Return where training data of the Hub is kept, as datasets has it."""
    home = os.path.join(environ.get("XDG_CACHE_HOME", os.path.join("~", ".cache")), "huggingface")
    kept = os.path.join(os.path.expanduser(environ.get("HF_HOME", home)), "datasets")
    return environ.get("HF_DATASETS_CACHE", kept)


def pyserini_cache() -> str:
    """Return where Pyserini keeps topics and prebuilt indexes. Its own function says so, taken out of its module, whose
    import would start a JVM and may fetch files."""
    source = (pyserini_folder() / "util.py").read_text(encoding="utf-8")
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    wanted = ast.Module([node for node in functions if node.name == "get_cache_home"], [])
    namespace: dict[str, Any] = {"os": os}
    exec(compile(wanted, "pyserini/util.py", "exec"), namespace)
    return namespace["get_cache_home"]()


def ir_datasets_cache(environ: Mapping[str, str]) -> str:
    """Return where ir_datasets keeps collections."""
    return environ.get("IR_DATASETS_HOME", str(Path.home() / ".ir_datasets"))


def regression_cache(environ: Mapping[str, str]) -> str:
    """Return where ``regress`` keeps models that it fetched (regression/planning.py)."""
    return str(Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pyserini-rescale")


def folders() -> Iterator[Line]:
    """The folders that this package and its dependencies write to: can they, and how much room is there."""
    for name, variable, where in (
        ("Hub cache", "HF_HOME", lambda: hugging_face_cache(os.environ)),
        ("data sets cache", "HF_DATASETS_CACHE", lambda: data_sets_cache(os.environ)),
        ("Pyserini cache", "PYSERINI_CACHE", pyserini_cache),
        ("ir_datasets home", "IR_DATASETS_HOME", lambda: ir_datasets_cache(os.environ)),
        ("models of regress", "XDG_CACHE_HOME", lambda: regression_cache(os.environ)),
        ("this folder", "", os.getcwd),
    ):
        try:
            yield folder_line(name, variable, Path(where()))
        except Exception as error:
            yield Line(name, PROBLEM, f"{type(error).__name__}: {one_line(error)}", _elsewhere(variable))
    yield temporary_files()


def temporary_files() -> Line:
    """Where temporary files go: Python takes another folder, without a word, where TMPDIR cannot be written."""
    name, asked = "temporary files", os.environ.get("TMPDIR")
    try:
        folder = Path(tempfile.gettempdir())
    except OSError as error:
        return Line(name, PROBLEM, one_line(error), _elsewhere("TMPDIR"))
    if asked and os.path.realpath(asked) != os.path.realpath(folder):
        found = f"TMPDIR, {asked}, cannot be written: {folder} is taken in its place"
        return Line(name, WARNING, found, _elsewhere("TMPDIR"))
    return folder_line(name, "TMPDIR", folder)


def _elsewhere(variable: str) -> str:
    return f"set {variable} to a folder with room that can be written" if variable else "change into another folder"


def folder_line(name: str, variable: str, folder: Path) -> Line:
    """Whether ``folder``, which ``variable`` moves, can be written, or be made where it is not there yet; and free space."""
    nearest = next(place for place in (folder.absolute(), *folder.absolute().parents) if exists(place))
    cure = _elsewhere(variable)
    reason = _unwritable(nearest)
    if reason is not None:
        if nearest == folder.absolute() and nearest.is_dir() and variable not in ("TMPDIR", ""):
            return Line(name, WARNING, f"{folder} can be read only ({reason}): nothing new can be fetched", cure)
        made = "cannot be written" if nearest == folder.absolute() else f"cannot be made in {nearest}"
        return Line(name, WARNING if variable == "" else PROBLEM, f"{folder} {made} ({reason})", cure)
    free = shutil.disk_usage(nearest).free
    found = f"{folder}, {_gb(free)} free"
    return Line(name, OK, found) if free >= LITTLE_SPACE else Line(name, WARNING, found, f"make room, or {cure}")


def _unwritable(folder: Path) -> str | None:
    """Return why nothing can be written in ``folder``: a file is, which has no name and is gone at once."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
            file.flush()
    except OSError as error:
        return error.strerror or one_line(error)
    return None


def _gb(size: float) -> str:
    return f"{size / 1e9:,.1f} GB"
