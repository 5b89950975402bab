"""The MLM head: load a model that has one, find it, rescale it, and save it so that others load it right.

Source of the rescale: arXiv 2606.18811, Eq. 6, W_head <- W_head / k. The scopes beyond the paper's and the reasons for
them are in the docstring of ``rescale_head``. What is not here: pooling (splade.py), the facts about each backbone
(backbones.py), and anything that chooses k.

Letters: B texts, L positions, V vocabulary, d width of the projection's input.
"""

import contextlib
import dataclasses
import inspect
import json
import math
import numbers
import os
import shutil
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import transformers
from safetensors import SafetensorError
from torch import nn
from transformers import (
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoConfig,
    AutoModelForMaskedLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from pyserini_rescale.errors import ConfigError, ModelError, one_line
from pyserini_rescale.model import reload, term_offsets
from pyserini_rescale.model.backbones import Backbone, backbone_for
from pyserini_rescale.model.policy import KEY, SCOPES, Policy, split_name

# Largest difference of logits after a reload, relative to the largest logit: float32 on a CPU is repeatable to about
# 1e-6; half precision and accelerators are not, and still far from what a lost rescale or bias would do.
_RELOAD_TOLERANCE = 1e-4
_RELOAD_TOLERANCE_COARSE = 2e-2

_PROBE_TEXT = "A probe: Rescaling the head, 10 times over."


@dataclasses.dataclass(frozen=True)
class Head:
    """The MLM head of a loaded model: where it is, not a copy.

    projection: the layer (V, d) whose output is the logits. word: the input embedding. backbone: its row in the table,
    or None for a model that passed the probe.
    """

    projection: nn.Linear
    word: nn.Module
    backbone: Backbone | None

    @property
    def weight(self) -> nn.Parameter:
        """W_head (V, d)."""
        return cast(nn.Parameter, self.projection.weight)

    @property
    def bias(self) -> nn.Parameter | None:
        """The bias (V), or None."""
        return cast(nn.Parameter | None, self.projection.bias)

    @property
    def tied(self) -> bool:
        """Whether W_head and the input embedding are the same parameter."""
        return self.projection.weight is getattr(self.word, "weight", None)


_bypasses: "weakref.WeakKeyDictionary[nn.Module, threading.RLock]" = weakref.WeakKeyDictionary()
_bypasses_lock = threading.Lock()


@contextlib.contextmanager
def bypassed(projection: nn.Module) -> Iterator[None]:
    """Within this context ``projection`` returns its input, so the model's ``logits`` are that input (B, L, d).

    This is how the logits (B, L, V) are never made, for any model of the library, without rebuilding its head. Threads
    that bypass the same projection take turns; one that calls the model without a bypass meanwhile gets that input, too.
    Forward hooks on the projection are applied to its input then.
    """
    with _bypasses_lock:
        lock = _bypasses.setdefault(projection, threading.RLock())
    with lock:
        before = projection.__dict__.get("forward")
        projection.forward = lambda hidden: hidden
        try:
            yield
        finally:
            if before is None:
                del projection.forward
            else:
                projection.forward = before


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers' load report and progress bars to itself: what matters in them becomes one line of ours."""
    logging = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def load_masked_lm(
    name: str, *, trust_remote_code: bool = False, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    """Return the masked language model ``name`` (folder or Hub id, our prefix allowed), in eval mode, on the CPU.

    Weights come from safetensors where there are any. Raises ModelError, in one line, if there is no such model, if it
    is no masked language model, if its files are damaged, if any weight is missing from them (transformers would
    fill in random ones), or if its head cannot be handled (see ``find_head``).
    """
    name, _ = split_name(str(name))
    _check_folder(name)
    try:
        with _quiet():
            config = AutoConfig.from_pretrained(name, trust_remote_code=trust_remote_code)
    except Exception as error:  # transformers, the Hub's client and remote code each raise types of their own
        raise ModelError(_load_message(name, error)) from error
    _check_is_masked_lm(name, config)
    try:
        with _quiet():
            model, info = AutoModelForMaskedLM.from_pretrained(
                name,
                config=config,
                dtype=dtype,
                trust_remote_code=trust_remote_code,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # they are refused below, by name
            )
    except Exception as error:  # the same, and safetensors and pickle
        raise ModelError(f"the weights of {name} cannot be loaded: {_short(error)}") from error
    model.eval()
    model.config.return_dict = True  # whatever a config.json says: outputs are asked for by name
    mismatched = {key: (tuple(stored), tuple(wanted)) for key, stored, wanted in info["mismatched_keys"]}
    if mismatched:
        wrong = [f"{key} is {stored}, not {wanted}" for key, (stored, wanted) in sorted(mismatched.items())]
        raise ModelError(f"the weights of {name} do not fit its config.json: {_listed(wrong)}")
    _settle_bias(name, model, set(info["missing_keys"]))
    try:
        find_head(model)
    except ModelError as error:
        raise ModelError(f"{name}: {error}") from error.__cause__
    term_offsets.attach(model, term_offsets.read(name, stored_policy(model)))
    return model


def _check_folder(name: str) -> None:
    """Refuse what is plainly no model before transformers takes the name for one of the Hub's."""
    folder = Path(name)
    if not name:
        raise ModelError("the name of the model is empty")
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ModelError(f"{name} holds no config.json: it is not the folder of a Hugging Face model")
    elif folder.exists():
        raise ModelError(f"{name} is a file: name the folder that holds config.json")
    elif name.count("/") > 1 or name.startswith((".", "~", "/")) or name.endswith("/"):
        raise ModelError(f"there is no model folder {name!r}")


def _load_message(name: str, error: BaseException) -> str:
    if "trust_remote_code" in str(error):
        return (
            f"{name} comes with code of its own, which is run only if you say so: "
            "--trust-remote-code, trust_remote_code=True"
        )
    if Path(name).is_dir():
        return f"config.json of {name} cannot be used: {_short(error)}"
    return f"{name} is neither a folder nor a model that can be fetched from the Hugging Face Hub: {_short(error)}"


def _check_is_masked_lm(name: str, config: Any) -> None:
    remote = "AutoModelForMaskedLM" in (getattr(config, "auto_map", None) or {})
    if not remote and type(config) not in MODEL_FOR_MASKED_LM_MAPPING:
        raise ModelError(
            f"{name} is a {config.model_type} model, for which transformers has no masked-language-model head"
        )
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(f"{name} is an encoder-decoder ({config.model_type}); only encoders can be used")


def _settle_bias(name: str, model: PreTrainedModel, missing: set[str]) -> None:
    """Refuse missing weights; give an untied head its bias whichever of its two names the file used.

    transformers 4.x stores the bias of an untied head under the twin's name only, where 5.x does not look for it.
    """
    row = backbone_for(model.config.model_type)
    if row is not None and row.bias_twin is not None:
        own, twin = f"{row.projection}.bias", row.bias_twin
        projection_bias, twin_bias = model.get_parameter(own), model.get_parameter(twin)
        with torch.no_grad():
            if own in missing and twin not in missing:
                projection_bias.copy_(twin_bias)
                missing.discard(own)
            elif twin in missing and own not in missing:
                missing.discard(twin)
        separate_twin(model)
    if missing:
        raise ModelError(
            f"{name} lacks weights of a masked language model, which transformers would fill with random numbers: "
            f"{_listed(sorted(missing))}; use a checkpoint that was saved with its MLM head"
        )


def separate_twin(model: PreTrainedModel) -> None:
    """In an untied model, make the second copy of the bias follow the first: own storage, equal values, not trained.

    Own storage, so that any ``save_pretrained`` writes both names (one shared tensor is written under one name, which
    transformers 4.x reads and 5.x does not); not trained, because the forward pass does not use it. Found by its place,
    beside the projection, so that models without a row (MPNet, DeBERTa-v2) have theirs kept as well.
    """
    projection, word = model.get_output_embeddings(), model.get_input_embeddings()
    if getattr(projection, "bias", None) is None or projection.weight is getattr(word, "weight", None):
        return  # tied: transformers ties the two biases itself, and stores them once
    for parent in model.modules():
        twin = getattr(parent, "bias", None)
        beside = any(child is projection for child in parent.children())
        if beside and isinstance(twin, nn.Parameter) and twin.shape == projection.bias.shape:
            parent.bias = nn.Parameter(projection.bias.detach().clone(), requires_grad=False)


def find_head(model: PreTrainedModel) -> Head:
    """Return the head of ``model``; from the table, or for a ``model_type`` without a row by probing it.

    Raises ModelError with the reason if there is no plain projection (V, d) that alone makes the logits.
    """
    config = model.config
    row = backbone_for(config.model_type)
    projection = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if projection is None:
        raise ModelError(f"{type(model).__name__} has no output embeddings, that is, no MLM head")
    if type(projection).forward is not nn.Linear.forward or not isinstance(projection, nn.Linear):
        raise ModelError(
            f"the output layer of {type(model).__name__} is a {type(projection).__name__}, not a plain nn.Linear"
        )
    word = model.get_input_embeddings()
    size = getattr(config, "vocab_size", None)
    if tuple(projection.weight.shape) != (size, projection.in_features):
        raise ModelError(
            f"the output layer of {type(model).__name__} has the shape {tuple(projection.weight.shape)} where the "
            f"vocabulary has {size} entries: it is not the projection to the vocabulary"
        )
    if row is None:
        _probe(model, projection)
    elif model.get_submodule(row.projection) is not projection:
        raise ModelError(
            f"the output layer of {type(model).__name__} is not at {row.projection}: was the model wrapped?"
        )
    return Head(projection=projection, word=word, backbone=row)


def _probe(model: PreTrainedModel, projection: nn.Linear) -> None:
    """Refuse a model whose logits are anything but x @ W_head^T + b, x (B, L, d) being the projection's one input."""
    kind = type(model).__name__
    if "attention_mask" not in inspect.signature(model.forward).parameters:
        raise ModelError(f"{kind} takes no attention mask, so padding would change its vectors")
    seen: list[torch.Tensor] = []
    hook = projection.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    was_training = model.training
    model.eval()
    batch = _probe_batch(model)
    try:
        with torch.inference_mode():
            logits = model(**batch).logits
            calls = len(seen)
            expected = nn.functional.linear(seen[0], projection.weight, projection.bias) if calls == 1 else None
            with bypassed(projection):
                bypass = model(**batch).logits
    except Exception as error:  # whatever a model that we do not know may raise
        raise ModelError(f"{kind} cannot be run on token ids and an attention mask alone: {_short(error)}") from error
    finally:
        hook.remove()
        model.train(was_training)
    if expected is None:
        raise ModelError(f"{kind} calls its output layer {calls} times: its logits are made elsewhere, or in parts")
    if (
        seen[0].shape[:-1] != batch["input_ids"].shape
        or logits.shape != expected.shape
        or bypass.shape != seen[0].shape
    ):
        raise ModelError(f"{kind} does something else between its output layer and its logits (shapes differ)")
    for got, want in ((logits, expected), (bypass, seen[0])):
        if not torch.allclose(got.float(), want.float(), rtol=1e-3, atol=1e-4 * want.abs().max().item()):
            raise ModelError(
                f"the logits of {kind} are not its output layer's x W^T + b: rescaling that layer is not enough"
            )


def _probe_batch(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Return a fixed small input (2, 8) with padding in the second row, as tensors on the model's device."""
    size = model.config.vocab_size
    ids = (torch.arange(16).reshape(2, 8) * 7919 + 5) % size
    mask = torch.ones(2, 8, dtype=torch.long)
    mask[1, 5:] = 0
    pad = getattr(model.config, "pad_token_id", None)
    pad = pad if isinstance(pad, int) and 0 <= pad < size else 0
    ids[ids == pad] = (pad + 1) % size  # padding in the middle would shift RoBERTa's position numbers
    ids[1, 5:] = pad
    return {"input_ids": ids.to(model.device), "attention_mask": mask.to(model.device)}


def probe_ids(model: PreTrainedModel) -> list[list[int]]:
    """Return the fixed small input of ``_probe_batch`` as two lists of token ids, without the padding."""
    batch = _probe_batch(model)
    return [ids[mask.bool()].tolist() for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)]


def position_limit(model: PreTrainedModel) -> int | None:
    """Return the longest input of ``model`` in tokens, special ones included; None if the config names no limit.

    RoBERTa counts positions from pad_token_id + 1, so that max_position_embeddings of 514 leaves 512; a model without a
    row in the table is taken to do so when its position embedding has a padding index.
    """
    most = getattr(model.config, "max_position_embeddings", None)
    if not isinstance(most, int) or most <= 0:
        return None
    row = backbone_for(model.config.model_type)
    if row is not None:
        return most - model.config.pad_token_id - 1 if row.padded_positions else most
    for path, module in model.named_modules():
        if path.endswith("position_embeddings") and isinstance(module, nn.Embedding) and module.padding_idx is not None:
            return module.num_embeddings - module.padding_idx - 1
    return most


def stored_policy(model: PreTrainedModel) -> Policy | None:
    """Return the policy that the model's config carries, or None."""
    return Policy.from_config({KEY: getattr(model.config, KEY, None)})


def check_factor(k: float) -> None:
    """Raise ConfigError unless ``k`` is a number that a head can be divided by."""
    if isinstance(k, bool) or not isinstance(k, numbers.Real) or not 0 < k < 1e300:  # NumPy's numbers are Real
        raise ConfigError(f"k = {k!r} cannot be used: a rescale factor is a finite number above 0")


def rescale_head(model: PreTrainedModel, k: float, *, scope: str = "shared", rescale_bias: bool = False) -> Policy:
    """Divide the MLM head by ``k``, in place and once; return the policy that is now recorded in ``model.config``.

    Source: arXiv 2606.18811, Eq. 6 (W_head <- W_head / k; k = 1 is standard SPLADE). Scopes:

    shared
        The paper's: a tied matrix is divided as it is, so the input embedding is divided too and the tie survives.
        Where other embeddings are added before the first LayerNorm, hidden states move.
    balanced
        ``shared``, and those other embeddings divided by k and the LayerNorm's eps by k^2, which leaves the normalised
        sum, hence the hidden states, what they were. The eps is one key of config.json for all LayerNorms; in the
        others the change moves an output by eps / (2 variance of the input) at most: rounding, but for inputs that
        hardly vary.
    untied
        Only the projection; the tie is broken, the input embedding untouched.

    ``rescale_bias`` divides the projection's bias too (the paper leaves it open; off by default).

    Raises ConfigError for a k or scope that means nothing, ModelError if this model was rescaled before, or if the
    scope cannot be done with it; nothing is changed then.
    """
    check_factor(k)
    k = float(k)
    if scope not in SCOPES:
        raise ConfigError(f"scope {scope!r} is unknown: use one of {', '.join(SCOPES)}")
    policy = stored_policy(model) or Policy()
    if policy.scope is not None:
        raise ModelError(
            f"this model was rescaled before (k = {policy.k:g}, scope {policy.scope}): "
            "start from the original checkpoint"
        )
    if policy.offset_rule is not None:
        raise ModelError(
            "this model has a bias offset, measured before any rescale: start from the original checkpoint"
        )
    head = find_head(model)
    kind = type(model).__name__
    if scope != "untied" and not head.tied:
        raise ModelError(
            f"scope {scope} divides the matrix that head and input share, but {kind} has an untied head: use untied"
        )
    row = head.backbone if scope == "balanced" else None
    if scope == "balanced" and row is None:
        raise ModelError(
            f"scope balanced needs to know which embeddings {kind} adds before its first LayerNorm, and model_type "
            f"{model.config.model_type} has no row in the table of backbones: use shared or untied"
        )
    bias = head.bias if rescale_bias else None
    if rescale_bias and bias is None:
        raise ModelError(f"the head of {kind} has no bias to rescale")

    largest = float(head.weight.detach().abs().max()) / k
    if not torch.finfo(head.weight.dtype).tiny < largest < torch.finfo(head.weight.dtype).max:
        raise ConfigError(f"k = {k:g} cannot be used: the largest weight of the head would become {largest:.3g}")

    tied_before = head.tied
    with torch.no_grad():
        if bias is not None:
            bias.div_(k)
        if scope == "untied":
            _untie(model, head)
        head.weight.div_(k)
        if row is not None:
            balance(model, row, k)
    policy = dataclasses.replace(policy, k=float(k), scope=scope, rescale_bias=rescale_bias, tied_before=tied_before)
    setattr(model.config, KEY, policy.to_dict())
    return policy


def _untie(model: PreTrainedModel, head: Head) -> None:
    """Give the projection a weight and a bias of its own, and tell transformers that it has."""
    trained = head.weight.requires_grad
    head.projection.weight = nn.Parameter(head.weight.detach().clone(), requires_grad=trained)
    if head.bias is not None:
        head.projection.bias = nn.Parameter(head.bias.detach().clone(), requires_grad=head.bias.requires_grad)
    separate_twin(model)
    model.config.tie_word_embeddings = False
    known = getattr(model, "all_tied_weights_keys", None)  # 5.x: what a later save takes for tied
    if known is not None:
        model.all_tied_weights_keys = model.get_expanded_tied_weights_keys(all_submodels=True)


def untie_head(model: PreTrainedModel) -> None:
    """Give a tied projection a matrix and a bias of its own, equal to what it shared; an untied one stays."""
    head = find_head(model)
    if head.tied:
        _untie(model, head)


def retie(model: PreTrainedModel, head: Head) -> None:
    """Let head and input embedding share the embedding's matrix again, and the bias its one parameter."""
    bias = head.bias
    model.config.tie_word_embeddings = True
    model.tie_weights()
    tied = head.bias
    if bias is not None and tied is not None:  # transformers takes the twin's values for both, which may be older
        with torch.no_grad():
            tied.copy_(bias)
        tied.requires_grad_(bias.requires_grad)


def balance(model: PreTrainedModel, row: Backbone, k: float) -> None:
    """Divide what is summed with the word embedding by k, and the LayerNorm's eps by k^2."""
    for path in row.summed:
        parent, _, attribute = path.rpartition(".")
        embedding = getattr(model.get_submodule(parent), attribute, None)
        if embedding is not None:  # None: GTE without token types
            embedding.weight.div_(k)
    if row.eps_key is None:
        return
    before = getattr(model.config, row.eps_key)
    after = before / k**2
    for module in model.modules():
        if isinstance(module, nn.LayerNorm) and module.eps == before:
            module.eps = after
    setattr(model.config, row.eps_key, after)


def check_output_folder(folder: str | os.PathLike) -> Path:
    """Return the absolute path of a folder to save a model to; raises ConfigError if anything is in its place."""
    path = Path(os.path.abspath(folder))
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ConfigError(f"{path} exists and is not an empty folder: name a new one, or remove it first")
    return path


def save_model(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    folder: str | os.PathLike,
    texts: Mapping[str, str] | None = None,
    fresh: bool = True,
) -> None:
    """Write ``model`` and ``tokenizer`` to ``folder`` so that plain transformers reads back exactly this model.

    texts: further files, name -> content, such as a model card. fresh: False loads it again in this process, which saves
    the seconds that another takes to start.

    Written to a hidden folder beside it, loaded from there in a fresh process by ``AutoModelForMaskedLM``, compared on
    a fixed small input, and only then renamed: ``folder`` is complete or absent. A tied head is stored once; an
    untied one with both names of its bias, which transformers 4.x and 5.x need in turn.

    Raises ConfigError if ``folder`` is a file or holds anything or ``tokenizer`` is none, ModelError if the reload gives other logits or
    other token ids, or if writing fails.
    """
    folder = check_output_folder(folder)
    if tokenizer is not None and not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise ConfigError(
            f"the tokenizer is {type(tokenizer).__name__}: give AutoTokenizer.from_pretrained(...), or None"
        )
    head = find_head(model)
    separate_twin(model)
    if bool(getattr(model.config, "tie_word_embeddings", False)) != head.tied:
        model.config.tie_word_embeddings = head.tied
    request, logits = _reference(model, tokenizer)
    draft = folder.with_name(f".{folder.name}.{os.getpid()}.draft")
    try:
        draft.mkdir(parents=True)
        with _quiet():
            model.save_pretrained(draft)
            if tokenizer is not None:
                tokenizer.save_pretrained(draft)
        term_offsets.write(model, draft)
        for name, content in (texts or {}).items():
            (draft / name).write_text(content, encoding="utf-8")
        _compare_reload(draft, request, logits, _tolerance(model), tokenizer, fresh)
        if folder.exists():
            folder.rmdir()
        draft.rename(folder)
    except ModelError:
        raise
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"the model cannot be written to {folder}: {_short(error)}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _reference(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> tuple[dict[str, Any], np.ndarray]:
    """Return the request for reload.py and the logits (2, 8, V), float32, that it must answer with."""
    batch = _probe_batch(model)
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            logits = model(**batch).logits.float().cpu().numpy()
    finally:
        model.train(was_training)
    if not np.isfinite(logits).all():
        raise ModelError(
            "the model's logits are not finite: it is not saved; a smaller k or learning rate may keep them so"
        )
    request: dict[str, Any] = {key: value.tolist() for key, value in batch.items()}
    request["text"] = None if tokenizer is None else _PROBE_TEXT
    request["trust_remote_code"] = type(model).__module__.startswith("transformers_modules")
    return request, logits


def _tolerance(model: PreTrainedModel) -> float:
    exact = model.device.type == "cpu" and model.dtype == torch.float32
    return _RELOAD_TOLERANCE if exact else _RELOAD_TOLERANCE_COARSE


def _compare_reload(
    folder: Path,
    request: dict[str, Any],
    logits: np.ndarray,
    tolerance: float,
    tokenizer: PreTrainedTokenizerBase | None,
    fresh: bool,
) -> None:
    """Raise ModelError unless the same logits and token ids are read from ``folder``, by a fresh process or by this one."""
    reloaded, token_ids = (_reload_elsewhere if fresh else _reload_here)(folder, request)
    difference = float(np.abs(reloaded - logits).max()) if reloaded.shape == logits.shape else math.inf
    if not difference <= tolerance * max(1.0, float(np.abs(logits).max())):
        raise ModelError(
            "the saved model gives other logits after a reload "
            f"(largest difference {difference:.3g}), so it was not kept"
        )
    if tokenizer is not None and token_ids != tokenizer(_PROBE_TEXT)["input_ids"]:
        raise ModelError("the saved tokenizer gives other token ids after a reload, so the model was not kept")


def _reload_elsewhere(folder: Path, request: dict[str, Any]) -> tuple[np.ndarray, list[int] | None]:
    """Return logits and token ids as a fresh process finds them."""
    answer = folder / "logits.npy"
    program = Path(__file__).with_name("reload.py")
    done = subprocess.run(
        [sys.executable, "-P", str(program), str(folder), str(answer)],
        input=json.dumps(request), capture_output=True, text=True, encoding="utf-8", check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONIOENCODING": "utf-8"},
    )  # fmt: skip
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ModelError(f"the saved model cannot be loaded again, so it was not kept: {reason}")
    reloaded = np.load(answer)
    answer.unlink()
    return reloaded, json.loads(done.stdout.splitlines()[-1])


def _reload_here(folder: Path, request: dict[str, Any]) -> tuple[np.ndarray, list[int] | None]:
    try:
        with _quiet():
            return reload.answer(str(folder), request)
    except Exception as error:  # as above: whatever loading raises
        raise ModelError(f"the saved model cannot be loaded again, so it was not kept: {_short(error)}") from error


def _short(error: BaseException, most: int = 300) -> str:
    text = one_line(error)
    return text if len(text) <= most else text[: most - 3] + "..."


def _listed(names: list[str], most: int = 6) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
