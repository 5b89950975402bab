"""DeepSpeed's part of a run: a start on a CPU, and float32 weights out of ZeRO. Its file: deepspeed_file.py.

The shipped configuration is regressions/training/zero1.yaml (stage 1, bf16). ZeRO stage 1 keeps the parameters in bf16
on every process, and divides float32 master weights and the optimiser's state among them.
"""

import torch
from torch import nn

from pyserini_rescale.errors import ModelError


def without_shared_memory_op() -> None:
    """Keep DeepSpeed on a CPU from compiling its shared-memory all-reduce at the start; gloo does the same work."""
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def float32_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return name -> float32 parameter on the CPU of a model under ZeRO, by its own names; every process has to call."""
    from deepspeed.utils import safe_get_full_fp32_param

    found = {}
    for name, parameter in model.named_parameters():
        whole = safe_get_full_fp32_param(parameter) if parameter.requires_grad else parameter
        if whole is None:
            raise ModelError(f"DeepSpeed holds no float32 weights of {name}: nothing was exported")
        found[name] = whole.detach().float().cpu().reshape(parameter.shape)
    return found
