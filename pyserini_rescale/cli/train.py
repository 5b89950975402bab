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
  torchrun --standalone --nproc-per-node 2 -m pyserini_rescale train --config my.yaml --cpu --set batch.world_size=2
  python -m pyserini_rescale train --config my.yaml --set optimizer.learning_rate=5e-4 --resume
  python -m pyserini_rescale train mine SCIFACT --split train --output triples.jsonl

exit status: 0 done, 2 something that cannot be used, 3 collapsed or a checkpoint could not be written, 130 interrupted
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="a YAML file, or a shipped configuration (train list), FILE:VARIANT for a variant",
    )
    parser.add_argument(
        "--set", action="extend", nargs="+", default=[], metavar="KEY=VALUE", dest="changes",
        help="change keys, as in batch.per_device=32; keys: docs/train.md",
    )  # fmt: skip
    parser.add_argument("--backbone", metavar="MODEL", help="short for --set backbone.name=MODEL")
    parser.add_argument(
        "--triples", nargs="+", metavar="FILE", help="short for --set data.files=[FILE,...]; paths as in a shell"
    )
    parser.add_argument("--output", metavar="FOLDER", help="short for --set output=FOLDER (default: runs/train/NAME)")
    parser.add_argument(
        "--cpu", action="store_true", help="short for --set 'compute={device: cpu, precision: fp32, deepspeed: null}'"
    )
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
    config = configs.resolve(args.config, [*args.changes, *_short(args)])
    if args.dry_run:
        return _dry_run(config, args)
    _check(config, args.resume)

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    from pyserini_rescale.train.launch import rank

    if rank() == 0:
        say("loading PyTorch and transformers")
    from pyserini_rescale.train.run import train

    model = train(config, resume=args.resume, say=say)
    if rank() == 0:
        say(_NEXT.format(log=shlex.quote(config.output), model=shlex.quote(str(model))))
        print(model)
    return 0


_NEXT = """\
Next:
  python -m pyserini_rescale plot loss {log} --output loss.png
  python -m pyserini.encode input --corpus CORPUS --fields title text output --embeddings EMBEDDINGS \\
    encoder --encoder {model} --encoder-class splade-rescaled --fields title text --device cpu
The model:"""


def _check(config: "TrainConfig", resume: bool) -> None:
    """Refuse what can be refused before torch is loaded; of several processes, the first says it."""
    from pyserini_rescale.files import at_home
    from pyserini_rescale.train import launch
    from pyserini_rescale.train.folder import check_folder

    try:
        launch.check_world(config)
        if launch.rank() == 0:
            check_folder(config, at_home(config.output), resume)
    except ConfigError as error:
        if launch.rank() == 0:
            raise
        sys.exit(error.exit_code)


def _short(args: argparse.Namespace) -> list[str]:
    """Return the options that stand for a key as --set takes them."""
    values: dict[str, Any] = {
        "backbone.name": args.backbone,
        "data.files": args.triples,
        "output": args.output,
        "monitors.collapse.action": args.on_collapse,
        "data.skip_bad": args.skip_bad or None,
        "compute": {"device": "cpu", "precision": "fp32", "deepspeed": None} if args.cpu else None,
    }
    return [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in values.items() if value is not None]


def _words(args: argparse.Namespace) -> list[str]:
    """Return the options that were typed, for the launch command."""
    words = ["--config", args.config]
    words += ["--set", *args.changes] if args.changes else []
    for name, value in (("backbone", args.backbone), ("output", args.output), ("on-collapse", args.on_collapse)):
        words += [f"--{name}", value] if value is not None else []
    words += ["--triples", *args.triples] if args.triples else []
    words += [f"--{name}" for name, given in (("skip-bad", args.skip_bad), ("cpu", args.cpu)) if given]
    return words


def _dry_run(config: "TrainConfig", args: argparse.Namespace) -> int:
    import dataclasses

    from pyserini_rescale.train import launch, schedule
    from pyserini_rescale.yaml_files import to_yaml

    command = launch.command(config, _words(args))
    if config.compute.deepspeed is not None:
        from pyserini_rescale.train.deepspeed_file import read_deepspeed

        read_deepspeed(config.compute.deepspeed)
    rows, known_by = _rows(config)
    plan = None if rows is None else schedule.schedule(config, rows)
    if args.json:
        found: dict[str, Any] = {
            "config": config.model_dump(mode="json"),
            "schedule": None if plan is None else dataclasses.asdict(plan),
            "global_batch": schedule.global_batch(config),
            "candidates": schedule.candidates(config),
            "rows_known_by": known_by,
            "command": command,
        }
        print(json.dumps(found, indent=1))
        return 0
    print(to_yaml(config.model_dump(mode="json")))
    batch = config.batch
    sizes = f"{batch.per_device} a device x {batch.world_size} devices x {batch.accumulation} micro-batches"
    lines = [("global batch", f"{schedule.global_batch(config):,}", sizes)]
    if plan is None:
        most = "not known" if config.max_steps is None else f"{config.max_steps:,}"
        lines.append(("steps", most, f"{known_by}; max_steps is {config.max_steps or 'not set'}"))
    else:
        lines = [
            ("triples", f"{plan.rows:,}", known_by),
            *lines,
            ("steps", f"{plan.steps:,}", f"{plan.steps_per_epoch:,} an epoch; an incomplete last batch is left out"),
            ("warm-up", f"{plan.warmup:,}", "steps until the learning rate is at its peak"),
            ("lambda ramp", f"{plan.ramp:,}", "steps until the lambdas are at full strength"),
        ]
    scored = f"documents a query is scored against ({_candidates(config)})"
    lines.append(("candidates", f"{schedule.candidates(config):,}", scored))
    for label, value, meaning in lines:
        print(f"{label:<14}{value:>9}  {meaning}")
    print(f"\n{shlex.join(command)}")
    return 0


def _rows(config: "TrainConfig") -> tuple[int | None, str]:
    """Return the number of triples as far as it is known without reading them all, and how."""
    data = config.data
    rows, known_by = data.rows, "data.rows; the exact number counts once the data is there"
    if rows is None and data.files:
        from pyserini_rescale.train.sources import lines_of

        rows, known_by = lines_of(data.files), "lines of data.files"
        if rows is None:
            return None, "the files are not there, or not of one line a row"
    if rows is None:
        return None, "data.rows says how many rows there are, and is not set"
    return (data.limit, "data.limit") if data.limit is not None and data.limit < rows else (rows, known_by)


def _candidates(config: "TrainConfig") -> str:
    one = f"{config.batch.per_device} positives and {config.batch.per_device} negatives"
    return f"{one} of its own device" if config.loss.candidates == "rank" else f"{one} of each device"
