"""``collection``: a test collection in the forms that Pyserini reads."""

import argparse
import shlex
from pathlib import Path

from pyserini_rescale.collections import open_collection, write_pyserini_form

HELP = "Write a test collection in the forms that Pyserini reads: corpus/, topics.json, topics.tsv, qrels.txt."
EXAMPLES = """\
  python -m pyserini_rescale collection data/scifact --output scifact
  python -m pyserini_rescale collection data/scifact --split train --output scifact-train
  python -m pyserini_rescale collection beir/scifact/test --output scifact
  python -m pyserini_rescale collection docstrings --output docstrings
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", help="a BEIR folder (corpus.jsonl, queries.jsonl, qrels/), an id of ir_datasets, or docstrings"
    )
    parser.add_argument("--split", default="test", help="which qrels/SPLIT.tsv of a BEIR folder (default: %(default)s)")
    parser.add_argument("--output", type=Path, required=True, help="folder to write; replaced if it is one of ours")


def run(args: argparse.Namespace) -> int:
    counts = write_pyserini_form(open_collection(args.source, args.split), args.output)
    print(f"documents            {counts.documents:>9,}   ({counts.empty_documents:,} without title and text)")
    print(f"judged queries       {counts.judged_queries:>9,}   ({len(counts.queries_without_text):,} without a text)")
    print(
        f"judgements           {counts.judgements:>9,}   ({counts.judgements_outside:,} of documents not in the corpus)"
    )
    if counts.queries_without_text:
        print(f"note: these queries cannot be searched and score 0: {', '.join(counts.queries_without_text[:10])}")
    print(
        f"written to {args.output}. Next, MODEL being a masked language model's folder or Hub id:\n{_next(args.output)}"
    )
    return 0


def _next(folder: Path) -> str:
    at = shlex.quote(str(folder))
    return f"""\
  python -m pyserini.encode input --corpus {at}/corpus --fields title text output --embeddings {at}-embeddings \\
      encoder --encoder MODEL --encoder-class splade-rescaled --fields title text --device cpu
  python -m pyserini.index.lucene --collection JsonVectorCollection --input {at}-embeddings --index {at}-index \\
      --generator DefaultLuceneDocumentGenerator --threads 1 --impact --pretokenized
  python -m pyserini.search.lucene --impact --index {at}-index --topics {at}/topics.json \\
      --encoder splade-rescaled:MODEL --output {at}-run.txt
  python -m pyserini.eval.trec_eval -c -m ndcg_cut.10 -m recip_rank {at}/qrels.txt {at}-run.txt"""
