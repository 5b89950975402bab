"""How many steps a run has and what changes with them: pure functions of the configuration and the optimiser step.

Source: arXiv 2606.18811, Section 4.1. The number of steps is what a dry run prints and what the trainer is told, so the
two cannot differ. A last incomplete global batch is left out: in-batch candidates would be fewer, and unequal among
processes.
"""

import dataclasses
import math

from pyserini_rescale.errors import ConfigError
from pyserini_rescale.train.config import RegularizerConfig, TrainConfig


@dataclasses.dataclass(frozen=True)
class Schedule:
    """rows: triples; global_batch: triples an optimiser step; steps: optimiser steps of the run, of which steps_per_epoch
    are one pass over the data, the first ``warmup`` raise the learning rate and the first ``ramp`` the lambdas.
    candidates: documents that each query is scored against, its own positive among them."""

    rows: int
    global_batch: int
    steps_per_epoch: int
    steps: int
    warmup: int
    ramp: int
    candidates: int


def schedule(config: TrainConfig, rows: int) -> Schedule:
    """Return the schedule for ``rows`` triples; ConfigError where they do not fill one batch."""
    batch, at_once = config.batch, global_batch(config)
    per_epoch = rows // at_once
    if per_epoch == 0:
        raise ConfigError(
            f"the data holds {rows:,} triples, fewer than one global batch of {at_once:,} (batch.per_device "
            f"{batch.per_device} x world_size {batch.world_size} x accumulation {batch.accumulation}): set a smaller one"
        )
    steps = math.ceil(config.epochs * per_epoch)
    if config.max_steps is not None:
        steps = min(steps, config.max_steps)
    return Schedule(
        rows=rows,
        global_batch=global_batch(config),
        steps_per_epoch=per_epoch,
        steps=steps,
        warmup=math.ceil(config.optimizer.warmup_ratio * steps),
        ramp=math.ceil(config.regularizer.ramp * steps),
        candidates=candidates(config),
    )


def global_batch(config: TrainConfig) -> int:
    """Return the triples of one optimiser step, over all processes and micro-batches."""
    return config.batch.per_device * config.batch.world_size * config.batch.accumulation


def candidates(config: TrainConfig) -> int:
    """Return the documents that each query is scored against (2B in Eq. 4)."""
    return 2 * config.batch.per_device * (config.batch.world_size if config.loss.candidates == "global" else 1)


def lambdas(config: RegularizerConfig, ramp: int, step: int) -> tuple[float, float]:
    """Return (lambda_q, lambda_d) at optimiser step ``step``, counted from 0: full strength times min(1, step/ramp)^2."""
    share = 1.0 if ramp == 0 else min(1.0, step / ramp) ** 2
    return config.query * share, config.document * share
