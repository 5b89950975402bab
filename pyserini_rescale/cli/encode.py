"""``encode``: a whole corpus, or topics, to impacts; and the proof that a corpus is encoded whole."""

import argparse
import re
import shlex
import sys
from pathlib import Path
from typing import Any

from pyserini_rescale.encode import corpus, quantize, topics
from pyserini_rescale.encode.prune import Pruning
from pyserini_rescale.errors import ConfigError
from pyserini_rescale.processes import Place, place

HELP = (
    "Encode a corpus of any size: streamed, in units that are each written whole, by one process or by many under torchrun, "
    "srun or as an array job. A run that was stopped goes on with --resume, on another number of processes too."
)
EXAMPLES = """\
  python -m pyserini_rescale encode --corpus data/scifact --model MODEL --output scifact-encoded
  python -m pyserini_rescale encode --corpus data/scifact --model MODEL --output scifact-encoded --resume
  python -m pyserini_rescale encode check scifact-encoded
  python -m pyserini_rescale encode topics data/scifact --like scifact-encoded --output scifact-topics.json

  torchrun --standalone --nproc-per-node 8 -m pyserini_rescale encode --corpus msmarco.tsv.gz --model MODEL --output out
  srun --nodes 4 --ntasks-per-node 8 --gpus-per-task 1 python -m pyserini_rescale encode --corpus ... --output out
  sbatch --array 0-15 --wrap 'python -m pyserini_rescale encode --shard $SLURM_ARRAY_TASK_ID/16 --corpus ... --output out'

  python -m pyserini_rescale encode --corpus docs/ --fields title headings segment --model MODEL --output out --gzip
  python -m pyserini_rescale encode --corpus beir/scifact --model MODEL --output out --quantizer calibrated --top-terms 256
  python -m pyserini_rescale index out --index out-index

exit status: 0 done (this process's share), 1 `check` found something, 2 something that cannot be used, or a full disk
"""
CHECK_EXAMPLES = "examples:\n  python -m pyserini_rescale encode check scifact-encoded\n"
TOPICS_EXAMPLES = """\
examples:
  python -m pyserini_rescale encode topics data/scifact --like scifact-encoded --output topics.json
  python -m pyserini_rescale encode topics queries.tsv --model MODEL --output topics.json --top-terms 16
  python -m pyserini.search.lucene --impact --index scifact-index --topics topics.json --output run.txt
"""
_SAID = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--corpus",
        metavar="SOURCE",
        help="a BEIR folder, a folder of files, a JSONL or TSV file (.gz too), or an id of ir_datasets",
    )
    add("--model", metavar="MODEL", help="folder or Hub id of a masked language model")
    add("--output", type=Path, metavar="FOLDER", help="folder to write: vectors/ is what Pyserini indexes")
    add("--resume", action="store_true", help="go on in a folder that holds finished units")
    add(
        "--shard", metavar="I/N", help="do part I (from 0) of N, for array jobs; under torchrun or srun, each process a part of that"
    )  # fmt: skip
    add(
        "--fields", nargs="+", default=[], metavar="FIELD",
        help="what a document's text is made of, joined by a space, empty ones left out; TSV: names for the columns after the id "
        "(default: title text, or contents)",
    )  # fmt: skip
    add("--id-field", metavar="FIELD", help="where a JSON document has its id (default: id, _id or docid)")
    add(
        "--max-length",
        type=int,
        metavar="N",
        help=f"tokens, special ones included (default: the model's own, else {corpus.LENGTH})",
    )
    add(
        "--quantizer", choices=quantize.NAMES, default=quantize.MODEL,
        help="model: what the model says, else Pyserini's; pyserini: 256/5; x100: 100/1; calibrated: a byte, on a sample "
        "(default: %(default)s)",
    )  # fmt: skip
    add(
        "--sample",
        type=int,
        default=corpus.SAMPLE,
        metavar="N",
        help="documents to calibrate on (default: %(default)s)",
    )
    add("--sample-topics", metavar="SOURCE", help="topics to calibrate on (default: first halves of documents)")
    _pruning(parser, "documents")
    add("--unit", type=int, metavar="N", help="documents in a unit (default: a 64th of the corpus, from 256 to 10,000)")
    add("--gzip", action="store_true", help="write .jsonl.gz")
    add(
        "--batch-size",
        type=int,
        default=64,
        metavar="N",
        help="documents in a forward pass at most (default: %(default)s)",
    )
    add("--device", metavar="DEVICE", help="cpu, cuda, cuda:N or mps (default: this process's GPU, else cpu)")
    add("--head", choices=("fp32", "bf16", "bf16-anyway"), help="type of the head's product (default: the model's)")
    add("--trust-remote-code", action="store_true", help="run code that comes with the model")
    actions = parser.add_subparsers(dest="action", metavar="{check,topics}", required=False)
    check = actions.add_parser(
        "check", help="prove that every document is encoded exactly once", epilog=CHECK_EXAMPLES,
        description="Compare an encoded corpus with the corpus, document by document, and its files with their checksums.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    check.add_argument("folder", type=Path, help="what encode wrote")
    check.add_argument("--corpus", metavar="SOURCE", help="where the corpus lies now, if it was moved")
    wanted = actions.add_parser(
        "topics", help="topics that pyserini.search.lucene --impact takes without an encoder", epilog=TOPICS_EXAMPLES,
        description="Encode topics, judged or not, to the file that pyserini.search.lucene --impact takes without an encoder.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    wanted.add_argument(
        "topics", metavar="SOURCE", help="a BEIR folder, topics.json, queries.jsonl, TSV, or an id of ir_datasets"
    )
    wanted.add_argument(
        "--output", type=Path, required=True, metavar="FILE", help="a .json file; FILE.manifest.json says the scale"
    )
    wanted.add_argument(
        "--like", type=Path, metavar="FOLDER", help="an encoded corpus, whose model and scale are taken"
    )
    wanted.add_argument("--model", metavar="MODEL", help="folder or Hub id (default: that of --like)")
    wanted.add_argument(
        "--quantizer", choices=quantize.NAMES, help="as in encode (default: that of --like, else the model's)"
    )
    wanted.add_argument(
        "--max-length", type=int, metavar="N", help=f"tokens (default: the model's own, else {topics.LENGTH})"
    )
    wanted.add_argument("--device", default="cpu", help="default: %(default)s")
    _pruning(wanted, "queries")


def _pruning(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--top-terms", type=int, metavar="N", help=f"keep the N largest weights of {what}")
    parser.add_argument(
        "--share", type=float, metavar="S", help=f"keep weights of at least S times the largest of {what}"
    )


def run(args: argparse.Namespace) -> int:
    if args.action == "check":
        return _check(args)
    if args.action == "topics":
        return _topics(args)
    lacking = [name for name in ("corpus", "model", "output") if getattr(args, name) is None]
    if lacking:
        raise ConfigError(f"{', '.join(f'--{name}' for name in lacking)} is needed; `encode --help` has examples")
    here = shard(args.shard, place())
    options = corpus.Options(
        corpus=args.corpus,
        model=args.model,
        output=args.output,
        fields=tuple(args.fields),
        id_field=args.id_field,
        quantizer=args.quantizer,
        pruning=Pruning(args.top_terms, args.share),
        max_length=args.max_length,
        unit=args.unit,
        gzip=args.gzip,
        sample=args.sample,
        sample_topics=args.sample_topics,
        batch_size=args.batch_size,
        device=args.device,
        head=args.head,
        trust_remote_code=args.trust_remote_code,
        resume=args.resume,
    )
    done = corpus.encode(options, here, _say, bar=here.local == 0)
    at = shlex.quote(str(args.output))
    if done.manifest is None:
        _say(f"{done.done:,} units done here; {len(done.missing):,} of {done.units:,} are other processes' and missing yet: "
             f"`python -m pyserini_rescale encode check {at}` says which")  # fmt: skip
    else:
        _say(_summary(done.manifest) + f"\nNext:\n  python -m pyserini_rescale index {at} --index {at}-index")
    return 0


def shard(text: str | None, here: Place) -> Place:
    """Return the place of a process of this one's launch in part I of N."""
    if text is None:
        return here
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if not found or not int(found[1]) < int(found[2]):
        raise ConfigError(f"--shard {text}: I/N is needed, with I from 0 to N - 1, as in 0/8 to 7/8")
    number, count = int(found[1]), int(found[2])
    return Place(number * here.count + here.number, count * here.count, here.local)


def _summary(manifest: dict[str, Any]) -> str:
    scale, terms = manifest["quantizer"], manifest["terms_per_document"]
    lines = [
        f"{manifest['documents']:,} documents in {len(manifest['parts']):,} files, {manifest['bytes']:,} bytes",
        f"{terms['mean']:,.1f} terms a document ({terms['least']:,} to {terms['most']:,}), "
        f"largest impact {manifest['largest_impact']:,}, by {scale['quant_range']}/{scale['weight_range']:g} ({scale['name']})",
    ]
    if manifest["empty_vectors"]:
        listed = ", ".join(manifest["first_empty_ids"][:_SAID])
        lines.append(f"{manifest['empty_vectors']:,} documents have no term and will not be indexed: {listed}")
    if manifest["clamped"]:
        lines.append(f"{manifest['clamped']:,} weights were clamped to {scale['limit']}")
    found = manifest["calibration"]
    if found:
        kept = next((one for one in found["candidates"] if one["weight_range"] == scale["weight_range"]), None)
        said = (
            "not measured, no query finds two documents"
            if kept is None or kept["overlap"] is None or kept["kendall"] is None
            else f"overlap@10 {kept['overlap']:.4f}, Kendall's tau {kept['kendall']:.4f}"
        )
        lines.append(
            f"ranking kept on {found['queries']:,} queries ({found['queries_are']}) over {found['documents']:,} documents: {said}"
        )
    return "\n".join(lines)


def _check(args: argparse.Namespace) -> int:
    from pyserini_rescale.encode.check import check

    problems, manifest = check(args.folder, args.corpus)
    for problem in problems[:_SAID]:
        print(f"problem: {problem}")
    if len(problems) > _SAID:
        print(f"and {len(problems) - _SAID:,} more problems")
    if problems or manifest is None:
        return 1
    print(_summary(manifest) + "\nevery document of the corpus is there exactly once, in order")
    return 0


def _topics(args: argparse.Namespace) -> int:
    options = topics.Options(
        args.topics, args.output, args.model, args.like, args.quantizer, Pruning(args.top_terms, args.share),
        args.max_length, args.device,
    )  # fmt: skip
    written = topics.encode_topics(options)
    empty = (
        f", {written['empty_vectors']:,} of them without a term, hence without hits" if written["empty_vectors"] else ""
    )
    print(
        f"{written['topics']:,} topics with {written['postings'] / written['topics']:.1f} terms each{empty}: {args.output}"
    )
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
