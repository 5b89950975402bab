"""``export``: an encoded corpus and topics for other engines."""

import argparse
from pathlib import Path

from pyserini_rescale.encode.export import KINDS, export
from pyserini_rescale.encode.quantize import of_policy
from pyserini_rescale.model.policy import Policy, read_policy, split_name

HELP = "Write an encoded corpus, and topics, in the forms of other engines, and read them back."
EXAMPLES = """\
  python -m pyserini_rescale export scifact-encoded --format ciff --topics scifact-topics.json --output scifact-ciff
  python -m pyserini_rescale export scifact-encoded --format jsonl-float --topics scifact-topics.json --output scifact-float

ciff: documents.ciff and topics.tsv, impacts as term frequencies, for PISA, BMP and others. jsonl-float: documents.jsonl and
topics.jsonl, impacts divided by their scale, for Seismic and vector databases.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("encoded", type=Path, help="what `encode` or `pyserini.encode` wrote")
    parser.add_argument("--format", choices=tuple(KINDS), required=True)
    parser.add_argument("--topics", type=Path, metavar="FILE", help="what `encode topics` wrote")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="folder to write")
    parser.add_argument(
        "--encoder", metavar="MODEL", help="the model that made the vectors, where no manifest says the scale"
    )


def run(args: argparse.Namespace) -> int:
    scale = None
    if args.encoder is not None:
        found = of_policy(read_policy(split_name(args.encoder)[0]) or Policy())
        scale = found.weight_range, found.quant_range
    done = export(args.encoded, args.output, args.format, args.topics, scale)
    print(f"{done['documents']:,} documents and {done['topics']:,} topics, read back and equal: {args.output}")
    return 0
