"""transformers' Trainer with a SPLADE model, its loss, our monitors, and checkpoints that are whole or absent.

What comes from the library: the loop, DDP and DeepSpeed, clipping, schedule, progress bar, TensorBoard, the content
of checkpoints. What is ours is below. Source of the recipe: arXiv 2606.18811, Section 4.1.
"""

import contextlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import datasets
import torch
import torch.distributed as dist
from safetensors import SafetensorError
from safetensors.torch import load_model, save_model
from torch import nn
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm
from transformers import PreTrainedModel, ProgressCallback, Trainer, TrainerCallback, TrainingArguments
from transformers.integrations import TensorBoardCallback

from pyserini_rescale.errors import DataError, RescaleError, StageError, one_line
from pyserini_rescale.model.fused import training_vectors
from pyserini_rescale.model.head import find_head, probe_ids, stored_policy
from pyserini_rescale.model.policy import Policy
from pyserini_rescale.model.splade import projection_input
from pyserini_rescale.train import checkpoints
from pyserini_rescale.train.config import TrainConfig
from pyserini_rescale.train.data import Collator, EpochSampler
from pyserini_rescale.train.deepspeed_file import read_deepspeed
from pyserini_rescale.train.folder import LOG
from pyserini_rescale.train.losses import splade_loss
from pyserini_rescale.train.monitors import JsonlLog, Totals, Watch
from pyserini_rescale.train.schedule import Schedule, lambdas

_WEIGHTS = "model.safetensors"
# The library measures the gradient's norm only where it clips.
_NO_CLIPPING = 1e30


class CollapseError(RescaleError):
    """Training was stopped because it had collapsed; the message says how."""

    exit_code = 3


class SpladeModel(nn.Module):
    """A masked language model that returns SPLADE vectors; one forward pass for a whole micro-batch, as DDP wants it.

    dropped: ids of the terms that never have a weight (special tokens, where the policy leaves them out).
    """

    def __init__(self, backbone: PreTrainedModel, *, fused: bool, dropped: list[int]) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = find_head(backbone)
        self.fused = fused
        self.dropped = dropped

    def forward(
        self,
        query_ids: torch.Tensor,
        query_mask: torch.Tensor,
        document_ids: torch.Tensor,
        document_mask: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return query vectors (B, V) and document vectors (2B, V), float32, for ids and masks (B, L) and (2B, L')."""
        return self._vectors(query_ids, query_mask), self._vectors(document_ids, document_mask)

    def _vectors(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        vectors = training_vectors(self.backbone, self.head, ids, mask, fused=self.fused)
        if self.dropped:
            vectors = vectors.index_fill(1, torch.tensor(self.dropped, device=vectors.device), 0.0)
        return vectors


def freeze_unused(model: SpladeModel) -> list[str]:
    """Take parameters that no vector depends on (a pooler) out of training; return their names.

    DDP waits for the gradient of every parameter that is trained.
    """
    backbone, head = model.backbone, model.head
    ids = torch.tensor([probe_ids(backbone)[0]], device=backbone.device)
    total = projection_input(backbone, head, ids, torch.ones_like(ids)).float().sum() + head.weight.float().sum()
    if head.bias is not None:
        total = total + head.bias.float().sum()
    total.backward()
    unused = [name for name, one in backbone.named_parameters() if one.requires_grad and one.grad is None]
    for name in unused:
        backbone.get_parameter(name).requires_grad_(False)
    backbone.zero_grad(set_to_none=True)
    return unused


def training_arguments(config: TrainConfig, folder: Path) -> TrainingArguments:
    """Return the library's arguments for a run; process groups are made here.

    max_steps and warmup_steps are to be set when the data is known.
    """
    cpu = config.compute.device == "cpu"
    grouped = config.batch.world_size > 1 or config.compute.deepspeed is not None
    every = config.checkpoints.every
    return TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=config.batch.per_device,
        gradient_accumulation_steps=config.batch.accumulation,
        max_steps=1,
        learning_rate=config.optimizer.learning_rate,
        weight_decay=config.optimizer.weight_decay,
        lr_scheduler_type="linear",
        optim="adamw_torch",
        max_grad_norm=config.optimizer.max_grad_norm or _NO_CLIPPING,
        logging_strategy="steps",
        logging_steps=config.monitors.every,
        logging_first_step=True,
        logging_nan_inf_filter=False,  # a loss that is not a number is to be seen
        save_strategy="no" if every is None else "steps",
        save_steps=every or 1,
        bf16=config.compute.precision == "bf16",
        use_cpu=cpu,
        ddp_backend="gloo" if cpu and grouped else None,
        deepspeed=None if config.compute.deepspeed is None else read_deepspeed(config.compute.deepspeed),
        seed=config.seed,
        remove_unused_columns=False,
        dataloader_drop_last=True,
        dataloader_num_workers=config.compute.workers,
        dataloader_pin_memory=not cpu,
        disable_tqdm=False,  # the bar is replaced by ours; the library decides by its log level
        ddp_find_unused_parameters=False,  # freeze_unused has seen to it
        report_to=[],
    )


class SpladeTrainer(Trainer):
    """The library's trainer for triples; ``log.jsonl``, the watch and checkpoints lie in the run's folder.

    resume_step: the optimiser step of the checkpoint that ``train`` will be told to resume from, None for a fresh run.
    """

    model: SpladeModel

    def __init__(
        self,
        config: TrainConfig,
        plan: Schedule,
        folder: Path,
        arguments: TrainingArguments,
        model: SpladeModel,
        collator: Collator,
        triples: datasets.Dataset,
        resume_step: int | None = None,
    ) -> None:
        self.config, self.plan, self.folder = config, plan, folder
        # Whole global batches only, accumulation included.
        self.sampler = EpochSampler(len(triples), config.seed, plan.steps_per_epoch * plan.global_batch)
        super().__init__(model=model, args=arguments, train_dataset=triples, data_collator=collator)
        self.model_accepts_loss_kwargs = False  # the loss of a micro-batch is a mean: accumulation divides it
        vocabulary = model.head.weight.shape[0]
        self.watch = Watch(config.monitors.collapse, vocabulary, plan.steps)
        self.totals = Totals(step=resume_step or 0)
        self.collapse: str | None = None
        self.pop_callback(ProgressCallback)
        self.add_callback(_Progress())
        self.add_callback(_Flow(self.sampler, self.totals))
        self.log_file: JsonlLog | None = None
        if self.is_world_process_zero():
            self.log_file = JsonlLog(folder / LOG, resume_step)
            if config.monitors.tensorboard:
                writer = SummaryWriter(
                    str(folder / "tensorboard"), purge_step=None if resume_step is None else resume_step + 1
                )
                self.add_callback(TensorBoardCallback(writer))

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        if self.state.global_step >= self.plan.steps:  # resumed after the last step: the library would make one more
            self.control.should_training_stop = True
            return
        super()._run_epoch(*args, **kwargs)

    # Optimizer

    def create_optimizer(self, *args: Any, **kwargs: Any) -> torch.optim.Optimizer:
        """Return the library's optimizer, with the head's matrix in a group of its own where it learns at another rate."""
        optimizer = super().create_optimizer(*args, **kwargs)
        multiple = self.config.optimizer.head_rate
        if multiple == "1/k":
            multiple = 1 / (stored_policy(self.model.backbone) or Policy()).k
        matrix = self.model.head.weight
        group = next((g for g in optimizer.param_groups if any(p is matrix for p in g["params"])), None)
        if group is not None and multiple != 1:
            group["params"] = [parameter for parameter in group["params"] if parameter is not matrix]
            optimizer.add_param_group({**group, "params": [matrix], "lr": group["lr"] * multiple})
        return optimizer

    # Data

    def _get_train_sampler(self, train_dataset: Any = None) -> EpochSampler:
        return self.sampler

    # Loss

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, torch.Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> torch.Tensor:
        """Return the loss of a micro-batch, scaled as losses.py says, and add it to the monitors."""
        queries, documents = model(**inputs)
        config = self.config
        lambda_query, lambda_document = lambdas(config.regularizer, self.plan.ramp, self.state.global_step)
        parts = splade_loss(
            queries,
            documents,
            temperature=config.loss.temperature,
            candidates=config.loss.candidates,
            batch=config.regularizer.batch,
            lambda_query=lambda_query,
            lambda_document=lambda_document,
        )
        self.totals.add(
            queries.detach(), documents.detach(), parts.scores, parts.positive,
            parts.contrastive, parts.flops_query, parts.flops_document,
            lambda_query=lambda_query, lambda_document=lambda_document,
        )  # fmt: skip
        return parts.backward

    # Monitors

    def log(self, logs: dict[str, Any], start_time: float | None = None) -> None:
        """Put the monitors' figures in place of the library's, write them, and ask the watch."""
        if "loss" not in logs:  # the library's summary at the end
            return
        figures = self.totals.figures(
            step=self.state.global_step,
            epoch=self.state.epoch or 0.0,
            learning_rate=logs["learning_rate"],
            gradient_norm=logs.get("grad_norm"),
        )
        if self.log_file is not None:
            self.log_file.write(figures)
        super().log(
            {name: value for name, value in figures.items() if name not in ("step", "epoch") and value is not None}
        )
        reason = self.watch.observe(figures)
        if reason is None:
            return
        if self.config.monitors.collapse.action == "stop":
            self.collapse = reason
            self.control.should_training_stop = True
        elif self.is_world_process_zero():
            tqdm.write(f"warning: {reason}", file=sys.stderr)

    # Checkpoints

    def _get_output_dir(self, trial: Any) -> str:
        return str(self.folder / checkpoints.UNFINISHED)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Write a checkpoint aside; when every process has done its part, rename it and remove old ones."""
        aside = self.folder / checkpoints.UNFINISHED
        main = self.is_world_process_zero()
        if main:
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
        wait_for_all()
        content = aside / f"checkpoint-{self.state.global_step}"
        state = {"totals": self.totals.state_dict(), "watch": self.watch.state_dict()}
        try:
            super()._save_checkpoint(model, trial)
            (content / _monitors(self.args.process_index)).write_text(json.dumps(state), encoding="utf-8")
            wait_for_all()
            if main:
                checkpoints.publish(aside, self.folder)
                checkpoints.prune(self.folder, self.config.checkpoints.keep)
        except (OSError, RuntimeError, SafetensorError) as error:  # torch.save reports a full disk as RuntimeError
            raise StageError(
                f"the checkpoint of step {self.state.global_step:,} cannot be written to {self.folder}: {one_line(error)[:200]}; "
                "earlier ones are whole: --resume continues from the last"
            ) from error
        wait_for_all()

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the weights of a checkpoint, shared ones once; under DeepSpeed the engine writes them itself."""
        folder = self.folder if output_dir is None else Path(output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        if not self.is_deepspeed_enabled and self.args.should_save:
            save_model(self.model, str(folder / _WEIGHTS))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        with _readable(resume_from_checkpoint):
            load_model(model or self.model, str(Path(resume_from_checkpoint) / _WEIGHTS), strict=True)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with _readable(checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with _readable(checkpoint):
            super()._load_rng_state(checkpoint)

    def restore_monitors(self, checkpoint: Path) -> None:
        """Take over the sums and the watch's state of a checkpoint."""
        with _readable(checkpoint):
            state = json.loads((checkpoint / _monitors(self.args.process_index)).read_text(encoding="utf-8"))
            self.totals.load_state_dict(state["totals"])
            self.watch.load_state_dict(state["watch"])


@contextlib.contextmanager
def _readable(checkpoint: Path | str | None) -> Iterator[None]:
    """Turn what reading a damaged checkpoint raises into one line."""
    try:
        yield
    except (
        OSError,
        RuntimeError,
        ValueError,
        KeyError,
        TypeError,
        EOFError,
        SafetensorError,
        UnpicklingError,
    ) as error:
        raise DataError(
            f"{checkpoint} is damaged ({one_line(error)[:160]}): remove it, and --resume takes the one before"
        ) from error


def _monitors(rank: int) -> str:
    return f"monitors_{rank}.json"


def wait_for_all() -> None:
    """Wait until every process is here; nothing where there is one."""
    if dist.is_available() and dist.is_initialized():
        dist.barrier()


class _Progress(ProgressCallback):
    """The library's bar, counted from the step that is resumed from, with the figures of the last log line beside it and
    not one line of text a logging step; seldom drawn where nobody watches."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            seldom = {} if sys.stderr.isatty() else {"mininterval": 15, "miniters": 1}
            self.training_bar = tqdm(
                total=state.max_steps,
                initial=state.global_step,
                desc="training",
                unit=" steps",
                dynamic_ncols=True,
                **seldom,
            )
        self.current_step = state.global_step

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        if self.training_bar is not None and logs and "contrastive" in logs:
            self.training_bar.set_postfix_str(
                f"at step {state.global_step}: loss {logs['loss']:.4g}, terms {logs['query_active']:.0f} a query, "
                f"{logs['document_active']:.0f} a document",
                refresh=False,
            )


class _Flow(TrainerCallback):
    """Tell the sampler which pass over the data begins (the library reaches it only through some of its wrappers), and
    have the last step logged, whatever its number."""

    def __init__(self, sampler: EpochSampler, totals: Totals) -> None:
        self.sampler, self.totals = sampler, totals

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.totals.restart_clock()  # what came before is no training

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.sampler.set_epoch(int(state.epoch or 0))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step >= state.max_steps:
            control.should_log = True
