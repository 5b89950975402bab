"""``train``: a SPLADE model out of a masked language model, from one CPU core to many GPUs."""

import argparse
import json
import shlex
import sys
from typing import TYPE_CHECKING, Any

from pyserini_rescale.cli import train_mine
from pyserini_rescale.errors import ConfigError

if TYPE_CHECKING:
    from pyserini_rescale.train.config import TrainConfig

HELP = (
    "Train a SPLADE model from a YAML configuration: rescale the head, train (transformers.Trainer, DeepSpeed ZeRO-1 and "
    "bf16 where the configuration says so), export a plain Hugging Face folder. Under deepspeed, torchrun or srun, or bare."
)
EXAMPLES = """\
  python -m pyserini_rescale train list
  python -m pyserini_rescale train --config table2:modernbert.k16 --dry-run
  deepspeed --num_gpus 8 --no_local_rank --module pyserini_rescale train --config table2:modernbert.k16
  python -m pyserini_rescale train --config smoke --backbone MODEL --triples triples.jsonl --output runs/smoke
  python -m pyserini_rescale train --config my.yaml --set optimizer.learning_rate=5e-4 --resume
  python -m pyserini_rescale train mine SCIFACT --split train --output triples.jsonl
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="a YAML file, or a shipped configuration (train list), FILE:VARIANT for a variant",
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="changes",
        help="change a key, as in batch.per_device=32; may be repeated",
    )  # fmt: skip
    parser.add_argument("--backbone", metavar="MODEL", help="short for --set backbone.name=MODEL")
    parser.add_argument("--triples", nargs="+", metavar="FILE", help="short for --set data.files=[FILE,...]")
    parser.add_argument("--output", metavar="FOLDER", help="short for --set output=FOLDER (default: runs/train/NAME)")
    parser.add_argument(
        "--resume", action="store_true", help="continue the run in the output folder from its last checkpoint"
    )
    parser.add_argument(
        "--on-collapse", choices=("stop", "warn"), help="short for --set monitors.collapse.action=stop or warn"
    )
    parser.add_argument(
        "--skip-bad", action="store_true", help="short for --set data.skip_bad=true: count bad rows, go on"
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print the configuration, steps and launch command; no network, no device",
    )
    parser.add_argument("--json", action="store_true", help="with --dry-run: as JSON")
    actions = parser.add_subparsers(dest="action", metavar="{list,mine}", required=False)
    actions.add_parser("list", help="the shipped configurations", description="The shipped configurations.")
    mine = actions.add_parser(
        "mine", help="triples with BM25 negatives out of a judged collection", description=train_mine.HELP,
        epilog="examples:\n" + train_mine.EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    train_mine.add_arguments(mine)


def run(args: argparse.Namespace) -> int:
    if args.action == "mine":
        return train_mine.run(args)
    from pyserini_rescale.train import config as configs

    if args.action == "list":
        print("\n".join(configs.shipped()))
        return 0
    if args.config is None:
        raise ConfigError("--config FILE is needed; `train list` names the shipped ones")
    if args.json and not args.dry_run:
        raise ConfigError("--json goes with --dry-run")
    changes = [*args.changes, *_short(args)]
    config = configs.resolve(args.config, changes)
    if args.dry_run:
        return _dry_run(config, args, changes)
    from pyserini_rescale.train.run import train

    model = train(config, resume=args.resume, say=lambda text: print(text, file=sys.stderr, flush=True))
    from pyserini_rescale.train.launch import rank

    if rank() == 0:
        print(model)
    return 0


def _short(args: argparse.Namespace) -> list[str]:
    """Return the options that stand for a key as --set takes them."""
    values = {
        "backbone.name": args.backbone,
        "data.files": args.triples,
        "output": args.output,
        "monitors.collapse.action": args.on_collapse,
        "data.skip_bad": args.skip_bad or None,
    }
    return [f"{key}={json.dumps(value)}" for key, value in values.items() if value is not None]


def _dry_run(config: "TrainConfig", args: argparse.Namespace, changes: list[str]) -> int:
    import dataclasses

    from pyserini_rescale.train import launch
    from pyserini_rescale.train.schedule import schedule
    from pyserini_rescale.yaml_files import to_yaml

    words = ["--config", args.config]
    for change in changes:
        words += ["--set", change]
    command = launch.command(config, words)
    if config.compute.deepspeed is not None:
        from pyserini_rescale.train.deepspeed_file import read_deepspeed

        read_deepspeed(config.compute.deepspeed)
    rows, known_by = _rows(config)
    plan = None if rows is None else schedule(config, rows)
    if args.json:
        found: dict[str, Any] = {
            "config": config.model_dump(mode="json"),
            "schedule": None if plan is None else dataclasses.asdict(plan),
            "rows_known_by": known_by,
            "command": command,
        }
        print(json.dumps(found, indent=1))
        return 0
    print(to_yaml(config.model_dump(mode="json")))
    batch = config.batch
    if plan is None:
        print("steps: not known before the data is read; data.rows says how many rows there are")
    else:
        lines = [
            ["triples", f"{plan.rows:,}", known_by],
            ["global batch", f"{plan.global_batch:,}",
             f"{batch.per_device} a device x {batch.world_size} devices x {batch.accumulation} micro-batches"],
            ["steps", f"{plan.steps:,}", f"{plan.steps_per_epoch:,} an epoch; an incomplete last batch is left out"],
            ["warm-up", f"{plan.warmup:,}", "steps until the learning rate is at its peak"],
            ["lambda ramp", f"{plan.ramp:,}", "steps until the lambdas are at full strength"],
            ["candidates", f"{plan.candidates:,}", f"documents a query is scored against ({_candidates(config)})"],
        ]  # fmt: skip
        for label, value, meaning in lines:
            print(f"{label:<14}{value:>9}  {meaning}")
    print(f"\n{shlex.join(command)}")
    return 0


def _rows(config: "TrainConfig") -> tuple[int | None, str]:
    """Return the number of triples as far as it is known without reading them, and how."""
    rows = config.data.rows
    if rows is None:
        return (None, "") if config.data.limit is None else (config.data.limit, "data.limit, if the data has so many")
    if config.data.limit is not None and config.data.limit < rows:
        return config.data.limit, "data.limit"
    return rows, "data.rows; the exact number counts once the data is there"


def _candidates(config: "TrainConfig") -> str:
    one = f"{config.batch.per_device} positives and {config.batch.per_device} negatives"
    return f"{one} of its own device" if config.loss.candidates == "rank" else f"{one} of each device"
