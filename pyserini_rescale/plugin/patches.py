"""Every change we make to Pyserini, each beside the fact that makes it necessary (seen in Pyserini 1.6.0 to 2.4.0).

A module of Pyserini is loaded by its own loader; ``PATCHES`` names what is done before or after that. The two kinds of
place where Pyserini decides by a closed list or by a substring of a path, and leaves no hook, are the ``__main__``
blocks of its commands (``MAINS``) and ``LuceneImpactSearcher``. Nothing here touches an encoder that is not ours. What
cannot be applied (an upstream name is gone) is warned about once and left out. See tests/plugin/test_upstream.py, which
fails when one of these facts no longer holds.
"""

import argparse
import ast
import functools
import importlib.abc
import importlib.machinery
import inspect
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pyserini_rescale.encode.untyped import UntypedInt, UntypedStr
from pyserini_rescale.errors import ConfigError, DataError, RescaleError, no_room, one_line
from pyserini_rescale.plugin import hook, java

ENCODER_CLASS = "splade-rescaled"
DEBUG_SWITCH = "PYSERINI_RESCALE_DEBUG"


def warn(message: str) -> None:
    """Print one line on standard error."""
    print(f"pyserini-rescale: {message}", file=sys.stderr)


# ---- Finding and loading ---------------------------------------------------------------------------------------------


def find_spec(name: str, path: Any, target: Any) -> importlib.machinery.ModuleSpec | None:
    """Return the spec of a Pyserini module with our loader around its own, or None where we change nothing."""
    if name != "pyserini" and name not in PATCHES and name not in MAINS:
        return None
    for finder in sys.meta_path:
        if hook.is_ours(finder) or not hasattr(finder, "find_spec"):
            continue
        spec = finder.find_spec(name, path, target)
        if spec is not None:
            if name == "pyserini":
                if spec.submodule_search_locations is not None:  # Pyserini, and not somebody's own pyserini.py
                    java.activate(os.environ, warn)  # before anything of Pyserini can start the JVM
                return None
            if spec.loader is not None and hasattr(spec.loader, "get_source"):
                spec.loader = PatchingLoader(spec.loader)
            return spec
    return None


class PatchingLoader(importlib.abc.Loader):
    """Pyserini's own loader, with our patch around the execution of the module; all else is passed through."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__loader__ = self._inner
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        patch = PATCHES.get(module.__name__)
        if patch is None:
            self._inner.exec_module(module)
        else:
            patch(self._inner, module)

    def get_code(self, name: str) -> types.CodeType | None:
        """For ``python -m``: the code of a main whose block runs through ``run_main``; else the module's own."""
        if name not in MAINS:
            return self._inner.get_code(name)
        try:
            head, block = _split_main(self._inner, name)
        except _Unexpected as error:
            warn(f"{name} is not as we know it ({error}): left as it is, {ENCODER_CLASS} is not available in it")
            return self._inner.get_code(name)
        _SPLIT[name] = head, block
        starter = f"__import__({__name__!r}, fromlist=['run_main']).run_main({name!r}, globals())"
        return compile(starter, self._inner.get_filename(name), "exec")


class _Unexpected(Exception):
    """Something of Pyserini is not what we know."""


def _after(change: Callable[[types.ModuleType], None]) -> Callable[[Any, types.ModuleType], None]:
    """A patch that runs after the module; where it fails, the module stays as Pyserini made it."""

    def patch(inner: Any, module: types.ModuleType) -> None:
        inner.exec_module(module)
        apply(change, module)

    patch.change = change  # type: ignore[attr-defined]
    return patch


def apply(change: Callable[[types.ModuleType], None], module: types.ModuleType) -> None:
    """Apply ``change`` to a loaded module, or say in one line that this Pyserini is not as we know it."""
    try:
        change(module)
    except Exception as error:  # whatever it is, Pyserini must go on as if we were not there
        warn(f"{module.__name__} is not as we know it ({type(error).__name__}: {one_line(error)}): left as it is")


def activate() -> None:
    """Do in a running interpreter what the start-up hook does: for modules to come, and for those already loaded."""
    hook.install()
    if "pyserini" in sys.modules:
        java.activate(os.environ, warn)
    for name, patch in PATCHES.items():
        change = getattr(patch, "change", None)
        if change is not None and name in sys.modules:
            apply(change, sys.modules[name])


# ---- Which encoders are ours -----------------------------------------------------------------------------------------


def is_ours(name: object) -> bool:
    """True for ``splade-rescaled:MODEL`` and for a folder or Hub id whose config.json carries our key."""
    from pyserini_rescale.model.policy import read_policy, split_name

    if not isinstance(name, str) or os.path.isfile(name):
        return False
    return split_name(name)[1] or read_policy(name) is not None


# ---- Imports that fail -----------------------------------------------------------------------------------------------


class _LazyValues(Mapping):
    """A dictionary whose values are computed when they are asked for."""

    def __init__(self, values: dict[str, Callable[[], Any]]) -> None:
        self._values = values

    def __getitem__(self, key: str) -> Any:
        return self._values[key]()

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class _LookUpsBecomeLazy(ast.NodeTransformer):
    """{"alias": CATALOGUE["name"], ...} becomes _LazyValues({"alias": lambda: CATALOGUE["name"], ...})."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        if not any(isinstance(value, ast.Subscript) for value in node.values) or None in node.keys:
            return node
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        lazy = ast.Dict(node.keys, [ast.Lambda(nothing, value) for value in node.values])
        return ast.copy_location(ast.Call(ast.Name("__lazy_values", ast.Load()), [lazy], []), node)


OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
"""What says not to ask the network, as huggingface_hub reads it: the first that is set."""
TRUE = frozenset({"1", "on", "true", "yes"})


def _prebuilt_index_info(inner: Any, module: types.ModuleType) -> None:
    """Fact (2.4.0): importing the catalogue of prebuilt indexes looks up aliases in files it fetches at that moment, so
    without a network no part of Pyserini that needs pyserini.util can be imported. Offline: look them up when asked."""
    try:
        told = next((name for name in OFFLINE if os.environ.get(name)), None)
        if told and os.environ[told].lower() in TRUE and "urlopen" in (inner.get_source(module.__name__) or ""):
            raise OSError(f"{told} is set")
        inner.exec_module(module)
        return
    except (OSError, ValueError) as error:  # URLError, time-outs, and what a captive portal answers
        reason = one_line(error)
    warn(
        f"offline ({reason}): Pyserini's catalogue of prebuilt indexes was not fetched; local indexes are not affected"
    )
    tree = _LookUpsBecomeLazy().visit(ast.parse(inner.get_source(module.__name__)))
    module.__dict__["__lazy_values"] = _LazyValues
    exec(compile(ast.fix_missing_locations(tree), inner.get_filename(module.__name__), "exec"), module.__dict__)


def _openai(inner: Any, module: types.ModuleType) -> None:
    """Fact (1.6.0 to 2.2.0): this module makes an OpenAI client when imported, and today's openai refuses to make one
    without a key, so that no encoder at all can be imported. A placeholder stands in while the module loads."""
    if os.environ.get("OPENAI_API_KEY"):
        inner.exec_module(module)
        return
    before = os.environ.get("OPENAI_API_KEY")
    os.environ["OPENAI_API_KEY"] = "OPENAI_API_KEY-is-not-set"
    try:
        inner.exec_module(module)
    finally:
        if before is None:
            del os.environ["OPENAI_API_KEY"]
        else:
            os.environ["OPENAI_API_KEY"] = before


# ---- Encoder classes in Python ---------------------------------------------------------------------------------------


def _document_encoder(*given: Any, **named: Any) -> Any:
    # Not the class itself: its module imports Pyserini's, which may be what is being imported right now.
    from pyserini_rescale.encode.encoder import SpladeRescaledDocumentEncoder

    return SpladeRescaledDocumentEncoder(*given, **named)


def _query_encoder(*given: Any, **named: Any) -> Any:
    from pyserini_rescale.encode.encoder import SpladeRescaledQueryEncoder

    return SpladeRescaledQueryEncoder(*given, **named)


def _is_query_encoder(encoder: object) -> bool:
    from pyserini_rescale.encode.encoder import SpladeRescaledQueryEncoder

    return isinstance(encoder, SpladeRescaledQueryEncoder)


def _is_marked(index_dir: str) -> bool:
    from pyserini_rescale.encode.marker import index_marker

    return index_marker(Path(index_dir)) is not None


def _encode(module: types.ModuleType) -> None:
    """Fact: document encoder classes are looked up in ``document_encoder_class_map``; ours is added. The table is also searched for a key that occurs in the
    model's path; ours comes last, and every path that holds it holds "splade" too, so no path is read differently."""
    module.document_encoder_class_map[ENCODER_CLASS] = _document_encoder


def _scale_of(encoder: object) -> tuple[float, int] | None:
    """Return the scale of a query encoder, None where it is not known."""
    from pyserini_rescale.encode.marker import PYSERINI_SCALE

    if _is_query_encoder(encoder):
        return encoder.policy.weight_range, encoder.policy.quant_range  # type: ignore[attr-defined]
    return PYSERINI_SCALE if type(encoder).__name__ == "SpladeQueryEncoder" else None


def _check_scale(index_dir: str, encoder: object) -> None:
    """Refuse an encoder whose scale is not the index's; warn about an index that does not say its own, ours only."""
    from pyserini_rescale.encode import marker

    scale = _scale_of(encoder)
    if scale is None:
        return
    ours = _is_query_encoder(encoder)
    warning = marker.check_scale(Path(index_dir), scale, encoder.name if ours else type(encoder).__name__)  # type: ignore[attr-defined]
    if warning and ours:
        warn(warning)


def _impact_searcher(module: types.ModuleType) -> None:
    """Facts: the query encoder is chosen by a substring of the path, and is None when none occurs in it; a query term
    that stands in every document is dropped unless min_idf is below 0; Lucene refuses more than 1,024 query terms,
    a limit with a setter of its own; impacts of another scale than the index's are searched without a word. Queries that were
    encoded before are searched as the encoder's own, in an index that we marked."""
    searcher = module.LuceneImpactSearcher
    if getattr(searcher, "_knows_splade_rescaled", False):
        return
    choose, construct = searcher._init_query_encoder_from_str, searcher.__init__
    if list(inspect.signature(construct).parameters)[:4] != ["self", "index_dir", "query_encoder", "min_idf"]:
        raise _Unexpected("LuceneImpactSearcher takes other arguments")

    @functools.wraps(choose)
    def choose_query_encoder(query_encoder: Any) -> Any:
        return _query_encoder(query_encoder) if is_ours(query_encoder) else choose(query_encoder)

    @functools.wraps(construct)
    def __init__(
        self: Any, index_dir: str, query_encoder: Any, min_idf: float = UntypedInt(0), *rest: Any, **named: Any
    ):
        construct(self, index_dir, query_encoder, min_idf, *rest, **named)
        _check_scale(index_dir, self.query_encoder)
        ours = _is_query_encoder(self.query_encoder)
        if ours or (query_encoder is None and _is_marked(index_dir)):
            if isinstance(min_idf, UntypedInt):
                self.min_idf = -1  # idf is never negative: the score is the whole dot product
            limits = module.autoclass("org.apache.lucene.search.IndexSearcher")
            terms = self.query_encoder.vocabulary_size if ours else len(self.idf)
            limits.setMaxClauseCount(max(limits.getMaxClauseCount(), terms))

    searcher._init_query_encoder_from_str = staticmethod(choose_query_encoder)
    searcher.__init__ = __init__
    searcher._knows_splade_rescaled = True


def _encode_query(module: types.ModuleType) -> None:
    """Fact: ``init_encoder`` chooses the query encoder by a substring of the path."""
    module.init_encoder = _query_encoder_chooser(module.init_encoder)  # type: ignore[attr-defined]


def _query_encoder_chooser(choose: Callable[..., Any]) -> Callable[..., Any]:
    if getattr(choose, "knows_splade_rescaled", False):
        return choose
    signature = inspect.signature(choose)
    if not {"encoder", "device"} <= set(signature.parameters):
        raise _Unexpected("init_encoder takes other arguments")

    @functools.wraps(choose)
    def init_encoder(*given: Any, **named: Any) -> Any:
        call = signature.bind(*given, **named).arguments
        if not is_ours(call["encoder"]):
            return choose(*given, **named)
        return _query_encoder(call["encoder"], device=call["device"])

    init_encoder.knows_splade_rescaled = True  # type: ignore[attr-defined]
    return init_encoder


# ---- Commands: python -m pyserini.X ----------------------------------------------------------------------------------

_SPLIT: dict[str, tuple[types.CodeType, types.CodeType]] = {}


def _split_main(inner: Any, name: str) -> tuple[types.CodeType, types.CodeType]:
    """Return the code of a module up to its ``if __name__ == "__main__"`` block, and of that block."""
    source = inner.get_source(name)
    body = ast.parse(source).body if source else []
    blocks = [node for node in body if isinstance(node, ast.If) and "__main__" in ast.dump(node.test)]
    if len(blocks) != 1 or body[-1] is not blocks[0]:
        raise _Unexpected("no single block for __main__ at its end")
    file = inner.get_filename(name)
    head, block = ast.Module(body[:-1], []), ast.Module(body[-1:], [])
    return compile(head, file, "exec"), compile(block, file, "exec")


def run_main(name: str, namespace: dict[str, Any]) -> None:
    """Execute a Pyserini command in ``namespace``, with our encoder known to it.

    Errors of ours leave one line and a non-zero status; so do those of Pyserini and its libraries when the command uses
    an encoder of ours (PYSERINI_RESCALE_DEBUG=1 shows the traceback). All other commands end as they do without us.
    """
    head, block = _SPLIT.pop(name)
    exec(head, namespace)
    command = MAINS[name]
    try:
        command.adapt(namespace)
    except Exception as error:  # whatever it is, Pyserini must go on as if we were not there
        warn(
            f"{name} is not as we know it ({type(error).__name__}: {one_line(error)}): it may not know {ENCODER_CLASS}"
        )
    try:
        exec(block, namespace)
        encoder = getattr(namespace.get("searcher"), "query_encoder", None)
        empty = getattr(encoder, "empty_count", 0)
        if empty:
            warn(f"{empty} queries have an empty vector, hence no hits")
        return
    except SystemExit as error:
        if error.code or namespace.get("searcher", True) is not None or not command.is_for_us(namespace):
            raise
        failure: BaseException = ValueError("no searcher")  # Pyserini leaves with status 0 then
    except (Exception, KeyboardInterrupt) as error:
        if os.environ.get(DEBUG_SWITCH) or not (isinstance(error, RescaleError) or command.is_for_us(namespace)):
            raise
        failure = error
    if isinstance(failure, RescaleError):
        message, status = one_line(failure), failure.exit_code
    elif isinstance(failure, KeyboardInterrupt):
        message, status = "interrupted", 130
    elif "MultiTerms.getTerms" in str(failure):
        message, status = f"--index {namespace['args'].index} holds no term: every vector in it is empty", 2
    elif "IndexNotFoundException" in str(failure):
        message, status = f"--index {namespace['args'].index} holds no Lucene index", 2
    elif missing := _missing_input(namespace.get("args")):
        message, status = (
            f"{missing}: no such path, and no name that Pyserini knows or can look up ({one_line(failure)})",
            2,
        )
    elif isinstance(failure, OSError) and no_room(failure) and (output := _output(namespace.get("args"))):
        message, status = f"{output} cannot be written: {failure.strerror or one_line(failure)}", 2
    else:
        message, status = f"{type(failure).__name__}: {one_line(failure)} ({DEBUG_SWITCH}=1 shows where)", 1
    print(f"error: {message}", file=sys.stderr)
    sys.exit(status)


def _output(args: object) -> str | None:
    """Return where a command writes to; an error of a full disk does not say it."""
    output = getattr(args, "output", None)
    found = getattr(output, "embeddings", output)
    return found if isinstance(found, str) else None


def _missing_input(args: object) -> str | None:
    """Return the first of --topics and --index that names nothing on this machine: what fails then is a download."""
    for option in ("topics", "index"):
        value = getattr(args, option, None)
        if isinstance(value, str) and not os.path.exists(value):
            return f"--{option} {value}"
    return None


def _untyped_defaults(options: Mapping[str, type], choices: Mapping[str, str] = {}) -> types.ModuleType:
    """Return argparse with parsers that mark the defaults of ``options`` as typed by nobody, and add to ``choices``.

    Facts: ``--encoder-class`` is a closed list; ``--max-length 256`` cannot be told from the default of 256.
    """

    class Parser(argparse.ArgumentParser):
        def add_argument(self, *names: str, **settings: Any) -> argparse.Action:
            for option in names:
                if option in options and settings.get("default") is not None:
                    settings["default"] = options[option](settings["default"])
                if option in choices and settings.get("choices") is not None:
                    settings["choices"] = [*settings["choices"], choices[option]]
            return super().add_argument(*names, **settings)

    proxy = types.ModuleType("argparse")
    proxy.__dict__.update(vars(argparse))
    proxy.ArgumentParser = Parser  # type: ignore[attr-defined]
    return proxy


class _EncodeCommand:
    """``python -m pyserini.encode``. Facts: ``--encoder-class`` is a closed list; a length and a device that somebody typed
    cannot be told from the defaults; --device falls back to the CPU when it is not understood; the collection is read whole, without a line number in any error, an empty title becomes the word
    "None"; the output is written under its final name from the start, and two shards under the same one."""

    @staticmethod
    def is_for_us(namespace: dict[str, Any]) -> bool:
        return ENCODER_CLASS in sys.argv or bool(namespace.get("__splade_rescaled"))

    @staticmethod
    def adapt(namespace: dict[str, Any]) -> None:
        untyped = {"--max-length": UntypedInt, "--device": UntypedStr}
        namespace["argparse"] = _untyped_defaults(untyped, {"--encoder-class": ENCODER_CLASS})
        choose = namespace["init_encoder"]
        signature = inspect.signature(choose)
        if not {"encoder", "encoder_class", "device", "prefix"} <= set(signature.parameters):
            raise _Unexpected("init_encoder takes other arguments")

        @functools.wraps(choose)
        def init_encoder(*given: Any, **named: Any) -> Any:
            call = signature.bind(*given, **named).arguments
            asked = call["encoder_class"]
            if asked != ENCODER_CLASS and (asked is not None or not is_ours(call["encoder"])):
                return choose(*given, **named)
            namespace["__splade_rescaled"] = True
            args = namespace["args"]
            if args.output.to_faiss:
                raise ConfigError("--to-faiss is for dense vectors, splade-rescaled makes sparse ones: leave it out")
            from pyserini_rescale.encode import jsonl

            encoder = _document_encoder(
                call["encoder"], device=call["device"], prefix=call["prefix"], batch_size=args.encoder.batch_size
            )
            namespace["JsonlCollectionIterator"] = jsonl.collection_iterator(namespace["JsonlCollectionIterator"])
            namespace["JsonlRepresentationWriter"] = functools.partial(
                jsonl.VectorWriter, shard=(args.input.shard_id, args.input.shard_num), encoder=encoder
            )
            return encoder

        namespace["init_encoder"] = init_encoder


class _EncodeQueryCommand:
    """``python -m pyserini.encode.query``. Fact: weights are scaled by --quant-range / --weight-range, with no default,
    although those of its own ``splade`` class are integers already."""

    @staticmethod
    def is_for_us(namespace: dict[str, Any]) -> bool:
        return "args" in namespace and _is_ours_or_broken(namespace["args"].encoder)

    @staticmethod
    def adapt(namespace: dict[str, Any]) -> None:
        namespace["argparse"] = _untyped_defaults({"--max-length": UntypedInt, "--device": UntypedStr})
        choose = _query_encoder_chooser(namespace["init_encoder"])

        def init_encoder(*given: Any, **named: Any) -> Any:
            encoder = choose(*given, **named)
            if _is_query_encoder(encoder):
                args = namespace["args"]
                policy = encoder.policy
                typed = args.weight_range, args.quant_range
                if typed not in ((None, None), (policy.weight_range, policy.quant_range)):
                    raise ConfigError(
                        f"impacts are quantised as the model says ({policy.weight_range:g} and {policy.quant_range}): "
                        "leave out --weight-range and --quant-range"
                    )
                args.weight_range = args.quant_range = 1  # what encode() returns is quantised
            return encoder

        namespace["init_encoder"] = init_encoder


def _check_search(args: Any) -> None:
    """Refuse topics that ``encode topics`` wrote, in an index of another scale, and an encoder of ours that would not be asked;
    warn where the index does not say its scale. Fact: without ``--impact``, ``--encoder`` is read by nothing."""
    from pyserini_rescale.encode import marker

    if args.encoder and not args.impact and _is_ours_or_broken(args.encoder):
        raise ConfigError(
            f"--encoder {args.encoder} goes with --impact: without it, words would be searched and the encoder not asked"
        )
    if not args.impact or args.encoder or not os.path.isdir(args.index):
        return
    found = marker.topics_marker(Path(args.topics))
    if found is not None and (warning := marker.check_scale(Path(args.index), marker.scale_of(found), args.topics)):
        warn(warning)


def _check_topic_ids(where: str, topics: Mapping[Any, Any]) -> None:
    """Fact: ids are written into the run as they are, where white space ends a column."""
    for name in topics:
        if len(str(name).split()) != 1:
            raise DataError(
                f"--topics {where}: the id {name!r} is empty or has white space in it, which no run can hold"
            )


class _SearchCommand:
    """``python -m pyserini.search.lucene``, beside its searcher class. Facts: a run is written under its own name from the
    first query on; topics are text without a scale, in whose place ``--encoder`` may be left out."""

    @staticmethod
    def is_for_us(namespace: dict[str, Any]) -> bool:
        return "args" in namespace and namespace["args"].impact and _is_ours_or_broken(namespace["args"].encoder)

    @staticmethod
    def adapt(namespace: dict[str, Any]) -> None:
        namespace["argparse"] = _untyped_defaults({"--min-idf": UntypedInt})
        make, read = namespace["get_output_writer"], namespace["get_query_iterator"]

        @functools.wraps(read)
        def get_query_iterator(*given: Any, **named: Any) -> Any:
            _check_search(namespace["args"])
            found = read(*given, **named)
            if _SearchCommand.is_for_us(namespace):
                _check_topic_ids(namespace["args"].topics, found.topics)
            return found

        @functools.wraps(make)
        def get_output_writer(path: str, *given: Any, **named: Any) -> Any:
            if not _SearchCommand.is_for_us(namespace):
                return make(path, *given, **named)
            return _WrittenAside(path, lambda aside: make(aside, *given, **named))

        namespace["get_output_writer"], namespace["get_query_iterator"] = get_output_writer, get_query_iterator


class _WrittenAside:
    """A run under another name until all of it is there. Fact: Pyserini writes it under its own from the first query on."""

    def __init__(self, path: str, make: Callable[[str], Any]) -> None:
        self.path, self.aside = path, f"{path}.{os.getpid()}.unfinished"
        self.writer = make(self.aside)

    def __enter__(self) -> "_WrittenAside":
        self.writer.__enter__()
        return self

    def write(self, *given: Any) -> None:
        self.writer.write(*given)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.writer.__exit__(kind, error, trace)
        if kind is None:
            os.replace(self.aside, self.path)
        else:
            os.unlink(self.aside)


def _is_ours_or_broken(name: object) -> bool:
    try:
        return is_ours(name)
    except RescaleError:
        return True


# ---- The table -------------------------------------------------------------------------------------------------------

PATCHES: dict[str, Callable[[Any, types.ModuleType], None]] = {
    "pyserini.prebuilt_index_info": _prebuilt_index_info,
    "pyserini.encode._openai": _openai,
    "pyserini.encode": _after(_encode),
    "pyserini.encode.query": _after(_encode_query),
    "pyserini.search.lucene._impact_searcher": _after(_impact_searcher),
}
MAINS: dict[str, Any] = {
    "pyserini.encode.__main__": _EncodeCommand,
    "pyserini.encode.query": _EncodeQueryCommand,
    "pyserini.search.lucene.__main__": _SearchCommand,
}
