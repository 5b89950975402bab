"""A training run from configuration to exported model, on every process of it.

The run's folder (folder.py) is made by one process; a second start is refused unless it resumes, with the same
configuration and the same data.
"""

import contextlib
import dataclasses
import json
import math
import os
import shutil
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import torch
import transformers

from pyserini_rescale.encode.terms import special_ids
from pyserini_rescale.environment import describe, installed
from pyserini_rescale.errors import ConfigError, DataError, one_line
from pyserini_rescale.files import at_home, write_json, write_text
from pyserini_rescale.model.head import load_masked_lm
from pyserini_rescale.model.tokenizer import load_tokenizer
from pyserini_rescale.train import checkpoints, launch, zero
from pyserini_rescale.train.config import TrainConfig
from pyserini_rescale.train.data import Collator, fingerprint, load_triples
from pyserini_rescale.train.deepspeed_file import read_deepspeed
from pyserini_rescale.train.export import export, model_card
from pyserini_rescale.train.folder import (
    CONFIG,
    FACTS,
    LOG,
    MODEL,
    RECORD,
    START,
    check_folder,
    deciding,
    is_finished,
    locked,
)
from pyserini_rescale.train.monitors import read_log
from pyserini_rescale.train.prepare import prepare
from pyserini_rescale.train.schedule import Schedule, schedule
from pyserini_rescale.train.trainer import (
    CollapseError,
    SpladeModel,
    SpladeTrainer,
    freeze_unused,
    training_arguments,
    wait_for_all,
)
from pyserini_rescale.yaml_files import to_yaml

_VERSIONED = ("pyserini-rescale", "torch", "transformers", "accelerate", "deepspeed", "datasets", "tokenizers")


def train(config: TrainConfig, *, resume: bool, say: Callable[[str], None]) -> Path:
    """Train, export, and return the folder of the exported model.

    resume: continue a run in this folder (from its last whole checkpoint, or its beginning). Raises ConfigError,
    DataError or ModelError before training, CollapseError when the watch stopped it.
    """
    launch.check_world(config)
    check_device(config)
    main = launch.rank() == 0
    say = say if main else _silent
    folder = at_home(config.output)
    with locked(folder) if main else contextlib.nullcontext():
        if main:
            check_folder(config, folder, resume)
            for draft in folder.glob(f".{MODEL}.*.draft"):  # of a process that was killed while it exported
                shutil.rmtree(draft, ignore_errors=True)
        if resume and is_finished(folder):
            say(f"{folder} is finished: {folder / MODEL}")
            return folder / MODEL
        _prepare_libraries(config)
        if resume and not (folder / CONFIG).exists():
            say(f"there is nothing to resume in {folder}: starting from the beginning")
        if config.compute.device == "cpu" and config.compute.precision == "bf16":
            say("bf16 on a CPU tests the set-up; it is several times slower than compute.precision=fp32")
        return _train(config, folder, resume, say)


def _train(config: TrainConfig, folder: Path, resume: bool, say: Callable[[str], None]) -> Path:
    started = time.time()
    main = launch.rank() == 0
    # The number of rows decides the number of steps, so the data comes first; process groups come with the arguments.
    arguments = training_arguments(config, folder)
    with arguments.main_process_first(local=False):  # of all nodes: the file system is shared
        triples = load_triples(config.data, say)
    plan = schedule(config, len(triples))
    arguments.max_steps, arguments.warmup_steps = plan.steps, plan.warmup
    if main:
        _start(config, triples, folder, say)
    wait_for_all()
    facts = read_facts(folder / FACTS)
    checkpoint = checkpoints.last(folder, say) if resume else None
    trainer = _trainer(config, folder, arguments, triples, plan, resume, checkpoint)
    if checkpoint is not None:
        say(f"resuming after step {checkpoint[0]:,} of {plan.steps:,}")
    policy = facts["policy"]
    shift = "" if policy["offset_rule"] is None else f", logits shifted by {policy['bias_offset']:.4g}"
    say(
        f"{plan.steps:,} steps of {plan.global_batch:,} triples, {plan.candidates:,} candidates a query; "
        f"k = {policy['k']:g}{shift}, mean row norm {facts['row_norm']['mean']:.4g}; log: {folder / LOG}"
    )
    if config.max_steps is not None and plan.steps < config.max_steps:
        say(
            f"max_steps {config.max_steps:,} is not reached: epochs {config.epochs:g} are {plan.steps:,} steps; raise epochs"
        )
    transformers.set_seed(config.seed + launch.rank())  # dropout of its own on each process
    try:
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint[1]))
    except KeyboardInterrupt:
        kept = checkpoints.last(folder) if main else None
        way = f"from {kept[1].name}" if kept else "from the beginning: there is no checkpoint yet"
        say(f"\ninterrupted after step {trainer.state.global_step:,}; --resume goes on {way}")
        raise
    except torch.OutOfMemoryError as error:
        raise ConfigError(
            f"the device's memory is too small ({one_line(error)[:120]}): take a smaller batch.per_device with more "
            "batch.accumulation, or compute.gradient_checkpointing"
        ) from error

    weights = {} if trainer.collapse else _weights(trainer)
    if not all(torch.isfinite(one).all() for one in weights.values()):
        trainer.collapse = "the trained weights are not finite: take a larger k, an offset or a lower learning rate"
    record = {
        "name": config.name,
        "state": "finished" if trainer.collapse is None else "collapsed",
        "reason": trainer.collapse,
        **dataclasses.asdict(plan),
        "seconds": round(time.time() - started, 1),
        "start": facts,
        "environment": describe(installed(_VERSIONED)),
    }
    if main:
        lines = read_log(folder / LOG)
        record |= {"first": lines[0], "last": lines[-1]}
        if trainer.collapse is None:
            say("exporting")
            card = model_card(config, record)
            trust = config.backbone.trust_remote_code
            export(folder / START, trainer.model.backbone, weights, folder / MODEL, card, trust)
        write_json(folder / RECORD, record)
    if trainer.collapse is not None:
        raise CollapseError(f"training collapsed: {trainer.collapse} (log: {folder / LOG})")
    wait_for_all()
    return folder / MODEL


def _start(config: TrainConfig, triples: datasets.Dataset, folder: Path, say: Callable[[str], None]) -> None:
    """Make the model that training starts with, and note what it was made for; or check that both are there.

    Raises ConfigError where the folder's run was begun with other data or another DeepSpeed file.
    """
    identity = {
        "config": deciding(config),
        "data": fingerprint(triples),
        "deepspeed": None if config.compute.deepspeed is None else read_deepspeed(config.compute.deepspeed),
    }
    begun = bool(checkpoints.found(folder))
    facts = read_facts(folder / FACTS) if (folder / FACTS).exists() else None
    if facts is not None and facts.get("made_for") == identity and (folder / START / "config.json").is_file():
        write_text(folder / CONFIG, to_yaml(config.model_dump(mode="json")))
        return
    if begun:
        made_for = {} if facts is None else facts.get("made_for", {})
        what = {"data": "the training data", "deepspeed": "the DeepSpeed file", "config": "the configuration"}
        changed = [name for key, name in what.items() if made_for.get(key) != identity[key]] or [f"{START}/"]
        raise ConfigError(
            f"{folder} holds checkpoints of another run: {', '.join(changed)} changed or is gone since; put it back, or "
            "name another folder by --output"
        )
    try:
        for path in (*folder.glob(f".{START}.*"), folder / START, folder / checkpoints.UNFINISHED):
            shutil.rmtree(path, ignore_errors=True)
        (folder / FACTS).unlink(missing_ok=True)
        say(f"preparing {config.backbone.name}")
        made = prepare(config, triples, folder / START)
        write_text(folder / CONFIG, to_yaml(config.model_dump(mode="json")))
        write_json(folder / FACTS, {**made, "made_for": identity})
    except OSError as error:
        raise ConfigError(f"output: {folder} cannot be written: {one_line(error)}") from None


def _trainer(
    config: TrainConfig,
    folder: Path,
    arguments: transformers.TrainingArguments,
    triples: datasets.Dataset,
    plan: Schedule,
    resume: bool,
    checkpoint: tuple[int, Path] | None,
) -> SpladeTrainer:
    """Return the trainer of the model in start/, its monitors as the checkpoint left them."""
    transformers.set_seed(config.seed)
    trust = config.backbone.trust_remote_code
    backbone = load_masked_lm(str(folder / START), trust_remote_code=trust)
    tokenizer = load_tokenizer(str(folder / START), trust)
    if config.compute.gradient_checkpointing:
        backbone.gradient_checkpointing_enable({"use_reentrant": False})
    model = SpladeModel(backbone, fused=config.compute.fused_head, dropped=[])
    if not config.text.special_tokens:
        model.dropped = sorted(special_ids(tokenizer, len(model.head.weight)))
    freeze_unused(model)
    collator = Collator(tokenizer, config.text.query_length, config.text.document_length)
    step = (checkpoint[0] if checkpoint else 0) if resume else None
    trainer = SpladeTrainer(config, plan, folder, arguments, model, collator, triples, resume_step=step)
    if checkpoint is not None:
        trainer.restore_monitors(checkpoint[1])
    return trainer


def _weights(trainer: SpladeTrainer) -> dict[str, torch.Tensor]:
    """Return the trained weights, float32, by name; every process has to call."""
    backbone = trainer.model.backbone
    if trainer.is_deepspeed_enabled and trainer.config.compute.precision == "bf16":
        return zero.float32_weights(backbone)
    return {name: parameter.detach().float().cpu() for name, parameter in backbone.named_parameters()}


def read_facts(path: Path) -> dict[str, Any]:
    """Return what is known of the model that training starts with; DataError where the file cannot be read."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        if math.isfinite(facts["row_norm"]["mean"]) and isinstance(facts["policy"]["k"], float):
            return facts
        raise ValueError("it was changed by hand")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path} cannot be used ({one_line(error)}): start the run anew in another folder") from None


def check_device(config: TrainConfig) -> None:
    """Raise ConfigError where the configuration's device is not there."""
    if config.compute.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "compute.device is cuda, and PyTorch sees no GPU here: --cpu trains on the CPU, in float32 and without DeepSpeed"
        )


def _prepare_libraries(config: TrainConfig) -> None:
    """Set what DeepSpeed reads at its import, and leave the talking to the progress bar and our own lines."""
    if config.compute.device == "cpu":
        os.environ.setdefault(
            "DS_ACCELERATOR", "cpu"
        )  # accelerate imports DeepSpeed, which warns where it has to guess
    if config.compute.threads is not None:
        torch.set_num_threads(config.compute.threads)
    if config.compute.deepspeed is not None:
        launch.stand_alone()
        if config.compute.device == "cpu":
            zero.without_shared_memory_op()
    transformers.utils.logging.set_verbosity_error()
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")


def _silent(text: str) -> None:
    return None
