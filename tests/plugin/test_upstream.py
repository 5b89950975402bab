"""The facts about Pyserini that make each patch necessary. One that fails says: upstream changed, look at the patch."""

import ast
import importlib.metadata
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pyserini_rescale.plugin import java, patches

VERSION = tuple(int(part) for part in importlib.metadata.version("pyserini").split(".")[:2])
FOLDER = Path(next(iter(importlib.util.find_spec("pyserini").submodule_search_locations)))

NO_NETWORK = """
import socket
def refuse(*args, **options): raise socket.gaierror("no network in this test")
socket.getaddrinfo = refuse
"""


def source(module: str) -> str:
    path = FOLDER.joinpath(*module.split(".")[1:])
    return (path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py").read_text()


def python(program: str, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("HF_HUB_OFFLINE", "OPENAI_API_KEY")}
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={**kept, **environ}, check=False
    )


@pytest.mark.jvm
def test_commands_end_in_one_main_block():
    program = (
        "import importlib.util\n"
        "from pyserini_rescale.plugin import patches\n"
        "for name in patches.MAINS:\n"
        "    head, block = patches._split_main(importlib.util.find_spec(name).loader._inner, name)\n"
        "    print(name, 'argparse' in head.co_names, 'parser' in block.co_names)"
    )
    done = python(program)
    assert [line.split()[1:] for line in done.stdout.splitlines() if "True" in line] == [["True", "True"]] * len(
        patches.MAINS
    ), done


def test_document_encoder_classes_are_a_closed_list():
    text = source("pyserini.encode.__main__")
    assert re.search(r"--encoder-class.*?choices=\[[^]]*\"splade\"", text, re.DOTALL)
    assert patches.ENCODER_CLASS not in text


@pytest.mark.parametrize(
    ("module", "function", "arguments"),
    [
        ("pyserini.encode.__main__", "init_encoder", {"encoder", "encoder_class", "device", "prefix"}),
        ("pyserini.encode.query", "init_encoder", {"encoder", "device"}),
        ("pyserini.encode.__main__", "parse_args", {"parser", "commands"}),
    ],
)
def test_functions_that_are_wrapped(module, function, arguments):
    found = [n for n in ast.parse(source(module)).body if isinstance(n, ast.FunctionDef) and n.name == function]
    assert len(found) == 1 and arguments <= {argument.arg for argument in found[0].args.args}


@pytest.mark.parametrize(
    "name", ["JsonlCollectionIterator(", "JsonlRepresentationWriter(", "init_encoder(", "args = parse_args("]
)
def test_encode_main_uses_the_names_that_are_replaced(name):
    block = source("pyserini.encode.__main__").split("if __name__")[1]
    assert name in block


def test_query_encoder_is_chosen_by_a_substring_of_the_path():
    assert "'splade' in query_encoder.lower()" in source("pyserini.search.lucene._impact_searcher")
    assert "'splade' in encoder.lower()" in source("pyserini.encode.query")


def test_query_terms_in_every_document_are_dropped_at_the_default_min_idf():
    text = source("pyserini.search.lucene._impact_searcher")
    assert "self.idf[token] > self.min_idf" in text and re.search(r"min_idf=0\b", text)


def test_a_title_that_is_empty_becomes_the_word_none():
    assert "{title} {text}" in source("pyserini.encode._splade")
    assert "else None" in source("pyserini.encode._base")


@pytest.mark.skipif(VERSION < (2, 4), reason="Pyserini before 2.4 does not fetch its catalogue at import")
def test_import_without_network_fails_without_us_and_works_with_us():
    program = NO_NETWORK + "import pyserini.util; print(len(pyserini.util.IMPACT_INDEX_INFO._sources))"
    assert "URLError" in python(program, PYSERINI_RESCALE_HOOK="0").stderr
    done = python(program)
    assert done.returncode == 0 and done.stdout.strip().isdigit(), done.stderr
    lines = [line for line in done.stderr.splitlines() if "offline" in line]
    assert len(lines) == 1 and "no network in this test" in lines[0]


@pytest.mark.skipif(VERSION < (2, 4), reason="Pyserini before 2.4 does not fetch its catalogue at import")
def test_offline_catalogue_answers_what_needs_no_network_and_fails_as_before_otherwise():
    program = NO_NETWORK + (
        "from pyserini.prebuilt_index_info import IMPACT_INDEX_INFO_MSMARCO_ALIASES as aliases\n"
        "print('msmarco-passage-unicoil-d2q' in aliases, len(aliases) > 0)\n"
        "try: aliases['msmarco-passage-unicoil-d2q']\n"
        "except OSError as error: print(type(error).__name__)"
    )
    assert python(program).stdout.split() == ["True", "True", "URLError"]


@pytest.mark.skipif(VERSION < (2, 4), reason="Pyserini before 2.4 does not fetch its catalogue at import")
@pytest.mark.parametrize("variable", patches.OFFLINE)
def test_told_to_be_offline_the_network_is_not_tried(variable):
    program = "import socket\ndef seen(*a, **o): print('TRIED')\nsocket.getaddrinfo = seen\nimport pyserini.util"
    done = python(program, **{variable: "1"})
    assert done.returncode == 0 and "TRIED" not in done.stdout and f"{variable} is set" in done.stderr


@pytest.mark.skipif(VERSION >= (2, 3), reason="from 2.3 on the OpenAI client is made when it is needed")
def test_openai_module_makes_a_client_at_import_and_needs_a_key_for_it():
    assert re.search(r"^client = openai\.OpenAI\(", source("pyserini.encode._openai"), re.MULTILINE)
    program = "import os, pyserini.encode; print(os.environ.get('OPENAI_API_KEY'))"
    done = python(program)
    assert done.returncode == 0 and done.stdout.split()[-1] == "None", done.stderr


def test_pyserini_asks_for_a_module_that_the_bundled_java_lacks():
    asking = [path for path in FOLDER.glob("*.py") if f"--add-modules={java.VECTOR_MODULE}" in path.read_text()]
    assert asking and not java.bundled().has_vector_module


def test_trec_eval_runs_the_java_on_the_path():
    assert "['java'," in source("pyserini.eval.trec_eval")


@pytest.mark.jvm
def test_lucene_refuses_more_than_1024_clauses_unless_told():
    program = (
        "from pyserini.pyclass import autoclass\n"
        "s = autoclass('org.apache.lucene.search.IndexSearcher'); print(s.getMaxClauseCount())\n"
        "s.setMaxClauseCount(30522); print(s.getMaxClauseCount())"
    )
    assert python(program).stdout.split()[-2:] == ["1024", "30522"]


def test_searcher_constructor_is_as_the_patch_knows_it():
    tree = ast.parse(source("pyserini.search.lucene._impact_searcher"))
    searcher = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "LuceneImpactSearcher")
    methods = {n.name: [a.arg for a in n.args.args] for n in searcher.body if isinstance(n, ast.FunctionDef)}
    assert methods["__init__"][:4] == ["self", "index_dir", "query_encoder", "min_idf"]
    assert methods["_init_query_encoder_from_str"] == ["query_encoder"]
    assert inspect.isfunction(patches._impact_searcher)


def test_the_search_command_reads_topics_by_the_name_that_is_replaced():
    block = source("pyserini.search.lucene.__main__").split("if __name__")[1]
    assert "get_query_iterator(args.topics" in block and block.index("get_query_iterator(") < block.index(
        "LuceneImpactSearcher("
    )


def test_pyserinis_own_splade_class_has_its_scale_in_its_code():
    text = source("pyserini.encode._splade")
    assert re.search(r"weight_range = 5\b", text) and re.search(r"quant_range = 256\b", text)
    assert "class SpladeQueryEncoder(" in text


def test_queries_without_an_encoder_are_counted_words():
    text = source("pyserini.search.lucene._impact_searcher")
    assert re.search(r"query_encoder is None:\s+return TokFreqQueryEncoder\(\)", text)
