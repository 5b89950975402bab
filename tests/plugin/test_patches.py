"""The patches' own machinery, without Java."""

import argparse
import ast
import json
import subprocess
import sys
import types

import pytest

from pyserini_rescale.errors import ConfigError
from pyserini_rescale.plugin import patches


def test_look_ups_in_dictionaries_become_lazy_and_nothing_else_changes():
    code = "calls = []\nclass C(dict):\n  def __getitem__(self, k): calls.append(k); return dict.__getitem__(self, k)\nC = C(a=1, b=2)\n"
    code += 'D = {"x": C["a"], "y": C["b"], "z": 3}\nE = {"x": 1}\ndef f(): return {"x": C["a"]}\n'
    namespace = {"__lazy_values": patches._LazyValues}
    exec(
        compile(ast.fix_missing_locations(patches._LookUpsBecomeLazy().visit(ast.parse(code))), "c", "exec"), namespace
    )
    assert (
        namespace["calls"] == [] and namespace["E"] == {"x": 1} and "y" in namespace["D"] and len(namespace["D"]) == 3
    )
    assert namespace["calls"] == []
    assert dict(namespace["D"]) == {"x": 1, "y": 2, "z": 3}
    assert namespace["f"]() == {"x": 1}


class Marked(int):
    pass


@pytest.mark.parametrize(("typed", "kind"), [([], Marked), (["--n", "256"], int)])
def test_typed_values_can_be_told_from_defaults_in_subparsers_too(typed, kind):
    library = patches._untyped_defaults({"--n": Marked}, {"--kind": "ours"})
    parser = library.ArgumentParser()
    sub = parser.add_subparsers().add_parser("part")
    sub.add_argument("--n", type=int, default=256)
    sub.add_argument("--kind", choices=["a"])
    args = parser.parse_args(["part", *typed, "--kind", "ours"])
    assert args.n == 256 and type(args.n) is kind and args.kind == "ours"
    assert argparse.ArgumentParser is not library.ArgumentParser and library.Namespace is argparse.Namespace


def test_whose_encoder_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    plain, ours = tmp_path / "splade-plain", tmp_path / "plain"
    for folder, config in ((plain, {}), (ours, {"splade_rescale": {"k": 2.0, "scope": "shared"}})):
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"model_type": "bert", **config}))
    assert patches.is_ours(str(ours)) and not patches.is_ours(str(plain))
    assert patches.is_ours(f"splade-rescaled:{plain}") and patches.is_ours("splade-rescaled:no/such")
    assert (
        not patches.is_ours(str(plain / "config.json")) and not patches.is_ours(None) and not patches.is_ours(object())
    )
    assert not patches.is_ours("naver/splade-v3") and not patches.is_ours(str(tmp_path / "absent"))


def test_module_that_is_not_as_we_know_it_is_left_alone_with_one_line(capsys):
    module = types.ModuleType("pyserini.search.lucene._impact_searcher")
    patches.apply(patches._impact_searcher, module)
    lines = capsys.readouterr().err.splitlines()
    assert (
        len(lines) == 1
        and "is not as we know it" in lines[0]
        and vars(module).keys() <= vars(types.ModuleType("x")).keys()
    )


def test_command_whose_block_cannot_be_found_runs_as_it_is(capsys):
    class Inner:
        def get_source(self, name):
            return "print('hello')"

        def get_code(self, name):
            return "its own code"

    assert patches.PatchingLoader(Inner()).get_code("pyserini.encode.__main__") == "its own code"
    assert "is not as we know it" in capsys.readouterr().err


def test_run_refuses_what_is_not_pyserini():
    from pyserini_rescale.cli import run

    with pytest.raises(ConfigError, match="not a module of Pyserini"):
        run.run(argparse.Namespace(module="json.tool", arguments=[]))


@pytest.mark.jvm
@pytest.mark.parametrize("first", ["pyserini_rescale.encode.encoder", "pyserini.encode", "pyserini.search.lucene"])
def test_modules_can_be_imported_in_any_order(first):
    program = f"import {first}\n" + (
        "import pyserini.encode, pyserini.search.lucene, pyserini_rescale.encode.encoder\n"
        "print('splade-rescaled' in pyserini.encode.document_encoder_class_map,\n"
        "      pyserini.search.lucene.LuceneImpactSearcher._knows_splade_rescaled)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-2:] == ["True", "True"] and "as we know it" not in done.stderr
