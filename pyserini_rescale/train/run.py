"""A training run from configuration to exported model, on every process of it.

The run's folder (folder.py) is made by one process; a second start is refused unless it resumes, with the same
configuration.
"""

import dataclasses
import json
import os
import shutil
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import torch
import torch.distributed as dist
import transformers

from pyserini_rescale.encode.terms import special_ids
from pyserini_rescale.environment import describe, installed
from pyserini_rescale.errors import ConfigError, DataError, one_line
from pyserini_rescale.files import write_json, write_text
from pyserini_rescale.model.head import find_head, load_masked_lm
from pyserini_rescale.model.tokenizer import load_tokenizer
from pyserini_rescale.train import checkpoints, launch, zero
from pyserini_rescale.train.config import TrainConfig
from pyserini_rescale.train.data import Collator, load_triples
from pyserini_rescale.train.export import export, exported_policy, model_card
from pyserini_rescale.train.folder import CONFIG, FACTS, MODEL, RECORD, START, check_folder
from pyserini_rescale.train.monitors import read_log
from pyserini_rescale.train.prepare import prepare
from pyserini_rescale.train.schedule import schedule
from pyserini_rescale.train.trainer import (
    LOG,
    CollapseError,
    SpladeModel,
    SpladeTrainer,
    freeze_unused,
    main_first,
    training_arguments,
)
from pyserini_rescale.yaml_files import to_yaml

_VERSIONED = ("pyserini-rescale", "torch", "transformers", "accelerate", "deepspeed", "datasets", "tokenizers")


def train(config: TrainConfig, *, resume: bool, say: Callable[[str], None]) -> Path:
    """Train, export, and return the folder of the exported model.

    resume: continue a run in this folder (from its last whole checkpoint, or its beginning). Raises ConfigError,
    DataError or ModelError before training, CollapseError when the watch stopped it.
    """
    started = time.time()
    launch.check_world(config)
    check_device(config)
    say = say if launch.rank() == 0 else _silent
    folder = Path(config.output).expanduser()
    if launch.rank() == 0:
        check_folder(config, folder, resume)
    if config.compute.device == "cpu":
        os.environ.setdefault(
            "DS_ACCELERATOR", "cpu"
        )  # accelerate imports DeepSpeed, which warns where it has to guess
    if config.compute.deepspeed is not None:
        launch.stand_alone()
        if config.compute.device == "cpu":
            zero.without_shared_memory_op()
    if resume and not (folder / CONFIG).exists():
        say(f"there is nothing to resume in {folder}: starting from the beginning")
    if config.compute.device == "cpu" and config.compute.precision == "bf16":
        say("bf16 on a CPU tests the set-up; it is several times slower than compute.precision=fp32")
    if resume and (folder / MODEL).is_dir():
        say(f"{folder} is finished: {folder / MODEL}")
        return folder / MODEL
    _quiet_libraries()

    # The number of rows decides the number of steps, so the data comes first; process groups come with the arguments.
    arguments = training_arguments(config, folder)
    with main_first(arguments):
        triples = load_triples(config.data, say)
    plan = schedule(config, len(triples))
    arguments.max_steps, arguments.warmup_steps = plan.steps, plan.warmup
    if launch.rank() == 0:
        _start(config, triples, folder, say)
    _wait()
    facts = read_json(folder / FACTS)
    checkpoint = checkpoints.last(folder) if resume else None

    transformers.set_seed(config.seed)
    trust = config.backbone.trust_remote_code
    backbone = load_masked_lm(str(folder / START), trust_remote_code=trust)
    tokenizer = load_tokenizer(str(folder / START), trust)
    if config.compute.gradient_checkpointing:
        backbone.gradient_checkpointing_enable({"use_reentrant": False})
    dropped = [] if config.text.special_tokens else sorted(special_ids(tokenizer, find_head(backbone).weight.shape[0]))
    model = SpladeModel(backbone, fused=config.compute.fused_head, dropped=dropped)
    freeze_unused(model)
    trainer = SpladeTrainer(
        config,
        plan,
        folder,
        arguments,
        model,
        Collator(tokenizer, config.text.query_length, config.text.document_length),
        triples,
        resume_step=None if not resume else (checkpoint[0] if checkpoint else 0),
    )
    if checkpoint is not None:
        trainer.restore_monitors(checkpoint[1])
        say(f"resuming after step {checkpoint[0]:,} of {plan.steps:,}")
    policy = facts["policy"]
    shift = "" if policy["offset_rule"] is None else f", logits shifted by {policy['bias_offset']:.4g}"
    say(
        f"{plan.steps:,} steps of {plan.global_batch:,} triples, {plan.candidates:,} candidates a query; "
        f"k = {policy['k']:g}{shift}, mean row norm {facts['row_norm']['mean']:.4g}; log: {folder / LOG}"
    )
    try:
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint[1]))
    except KeyboardInterrupt:
        kept = checkpoints.last(folder) if launch.rank() == 0 else None
        way = f"from {kept[1].name}" if kept else "from the beginning: there is no checkpoint yet"
        say(f"\ninterrupted after step {trainer.state.global_step:,}; --resume goes on {way}")
        raise
    except torch.OutOfMemoryError as error:
        raise ConfigError(
            f"the device's memory is too small ({one_line(error)[:120]}): take a smaller batch.per_device with more "
            "batch.accumulation, or compute.gradient_checkpointing"
        ) from error

    record = {
        "name": config.name,
        "state": "finished" if trainer.collapse is None else "collapsed",
        "reason": trainer.collapse,
        **dataclasses.asdict(plan),
        "seconds": round(time.time() - started, 1),
        "start": facts,
        "environment": describe(installed(_VERSIONED)),
    }
    if launch.rank() == 0:
        lines = read_log(folder / LOG)
        record |= {"first": lines[0], "last": lines[-1]}
    if trainer.collapse is not None:
        if launch.rank() == 0:
            write_json(folder / RECORD, record)
        raise CollapseError(f"training collapsed and was stopped: {trainer.collapse} (log: {folder / LOG})")
    weights = _weights(trainer, backbone)
    if launch.rank() == 0:
        say("exporting")
        card = model_card(config, record, exported_policy(backbone))
        export(folder / START, backbone, weights, folder / MODEL, card, trust)
        write_json(folder / RECORD, record)
    _wait()
    return folder / MODEL


def _start(config: TrainConfig, triples: datasets.Dataset, folder: Path, say: Callable[[str], None]) -> None:
    """Make the run's folder with its configuration and the model that training starts with; all of it or nothing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder / checkpoints.UNFINISHED, ignore_errors=True)
        if not (folder / FACTS).exists():
            shutil.rmtree(folder / START, ignore_errors=True)
            say(f"preparing {config.backbone.name}")
            write_json(folder / FACTS, prepare(config, triples, folder / START))
        write_text(folder / CONFIG, to_yaml(config.model_dump(mode="json")))
    except OSError as error:
        raise ConfigError(f"output: {folder} cannot be written: {one_line(error)}") from None
    finally:
        if not (folder / CONFIG).exists() and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _weights(trainer: SpladeTrainer, backbone: torch.nn.Module) -> dict[str, torch.Tensor]:
    if trainer.is_deepspeed_enabled and trainer.config.compute.precision == "bf16":
        return zero.float32_weights(backbone)
    return {name: parameter.detach().float().cpu() for name, parameter in backbone.named_parameters()}


# What a run says and reads


def read_json(path: Path) -> Any:
    """Return what a file of ours holds; DataError where it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({one_line(error)}): start the run anew in another folder") from None


def check_device(config: TrainConfig) -> None:
    """Raise ConfigError where the configuration's device is not there."""
    if config.compute.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "compute.device is cuda, and PyTorch sees no GPU here: --cpu trains on the CPU, in float32 and without DeepSpeed"
        )


def _silent(text: str) -> None:
    return None


def _quiet_libraries() -> None:
    """Leave the talking to the progress bar and our own lines; warnings stay."""
    transformers.utils.logging.set_verbosity_error()
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")


def _wait() -> None:
    if dist.is_available() and dist.is_initialized():
        dist.barrier()
