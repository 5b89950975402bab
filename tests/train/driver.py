"""``pyserini_rescale train ARGUMENTS``, watched or killed as ordered: for torchrun, or in a process forked by conftest.py.

    python -m tests.train.driver ORDERS ARGUMENTS

ORDERS is a JSON object: kill_at (SIGKILL to this process in the first micro-batch after so many steps), kill_in_checkpoint
(SIGKILL when the checkpoint of this step is written and not yet renamed), kill_in_save ("start" or "export": SIGKILL when
the draft of that folder is written and not yet renamed), rank (of the process to kill, 0), gradients (a folder for the
gradients of the first step, by rank), facts (a file for what the engine is). A saved model is read back in the process
that saved it, which is some seconds quicker: test_head.py and test_wheel.py read it back as users do.
"""

import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from transformers import TrainerCallback

from pyserini_rescale.cli import main
from pyserini_rescale.model import head
from pyserini_rescale.train import checkpoints, export, prepare, trainer
from pyserini_rescale.train.launch import rank

orders: dict = {}


def kill() -> None:
    if rank() == orders.get("rank", 0):
        os.kill(os.getpid(), signal.SIGKILL)


class Spy(TrainerCallback):
    def on_train_begin(self, args, state, control, model=None, optimizer=None, **kwargs):
        if "facts" in orders and rank() == 0:
            Path(orders["facts"]).write_text(json.dumps(facts(self.trainer)))

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        if "gradients" in orders and state.global_step == 0:
            model = self.trainer.model.backbone
            found = {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}
            torch.save(found, Path(orders["gradients"]) / f"{rank()}.pt")


def facts(one) -> dict:
    engine = one.model_wrapped
    optimizer = engine.optimizer
    return {
        "engine": type(engine).__name__,
        "stage": engine.zero_optimization_stage(),
        "parameters": sorted({str(parameter.dtype) for parameter in engine.module.parameters()}),
        "masters": sorted({str(group.dtype) for group in optimizer.single_partition_of_fp32_groups}),
        "inner": type(optimizer.optimizer).__name__,
        "world": dist.get_world_size(),
        "backend": dist.get_backend(),
        "clip": engine.gradient_clipping(),
        "communication": str(engine.communication_data_type),
    }


made = trainer.SpladeTrainer.__init__


def init(self, *arguments, **options):
    made(self, *arguments, **options)
    spy = Spy()
    spy.trainer = self
    self.add_callback(spy)


trainer.SpladeTrainer.__init__ = init
computed = trainer.SpladeTrainer.compute_loss


def compute_loss(self, *arguments, **options):
    if orders.get("kill_at") == self.state.global_step:
        kill()
    return computed(self, *arguments, **options)


trainer.SpladeTrainer.compute_loss = compute_loss
published = checkpoints.publish


def publish(unfinished, folder):
    if [step for step, _ in checkpoints.found(unfinished)] == [orders.get("kill_in_checkpoint")]:
        kill()
    published(unfinished, folder)


checkpoints.publish = publish


def deadly(*arguments, **options):
    """Save a model, as far as its draft: killed where the draft would be read back and renamed."""
    head._compare_reload = lambda *_: kill()
    head.save_model(*arguments, **options)


head._reload_elsewhere = head._reload_here


def run(given: dict, arguments: list[str]) -> int:
    """Obey, train, return the exit status."""
    orders.update(given)
    if "kill_in_save" in orders:
        {"start": prepare, "export": export}[orders["kill_in_save"]].save_model = deadly
    return main(["train", *arguments])


if __name__ == "__main__":
    sys.exit(run(json.loads(sys.argv[1]), sys.argv[2:]))
