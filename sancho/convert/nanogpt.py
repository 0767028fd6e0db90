"""Import of nanoGPT's character models (github.com/karpathy/nanoGPT).

nanoGPT keeps two pickles: ckpt.pt, which train.py writes, and meta.pkl, in which prepare.py keeps
the characters. A pickle may name any function of Python's to be called. Of these two nothing is
called: ckpt.pt is read by PyTorch as weights alone, and the reader of meta.pkl knows no function.
"""

import io
import pickle
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from sancho import checkpoint
from sancho.checkpoint import Checkpoint, Progress, count_parameters, weight_shapes
from sancho.config import Checked, ModelConfig, TrainConfig, from_dict
from sancho.errors import UserError
from sancho.machine.files import check_new, existing_file

GPT2_VOCABULARIES = (50257, 50304)
"""The number of GPT-2's tokens, and that rounded up to a multiple of 64."""
NAMES = {
    "token_embedding": "transformer.wte",
    "position_embedding": "transformer.wpe",
    "blocks": "transformer.h",
    "norm1": "ln_1",
    "attention.qkv": "attn.c_attn",
    "attention.proj": "attn.c_proj",
    "norm2": "ln_2",
    "feed_forward.expand": "mlp.c_fc",
    "feed_forward.proj": "mlp.c_proj",
    "norm": "transformer.ln_f",
    "head": "lm_head",
}
"""nanoGPT's names of the parts, by ours."""


@dataclass(frozen=True, kw_only=True)
class FromNanogptOptions(Checked):
    """Make a checkpoint of a character model that nanoGPT trained."""

    checkpoint: Path = Path("ckpt.pt")
    """What nanoGPT's train.py left in its out_dir."""
    meta: Path | None = None
    """The characters: the meta.pkl that nanoGPT's prepare.py wrote beside train.bin."""
    output: Path = Path("nanogpt.safetensors")
    """The checkpoint to make; it must not be there."""


def from_nanogpt(options: FromNanogptOptions) -> list[str]:
    """Write the checkpoint; return the lines to tell the user.

    Raises UserError for a file that is not of nanoGPT's making, damaged or hostile.
    """
    check_new(options.output)
    saved = read(options.checkpoint, options.meta)
    checkpoint.save(options.output, saved)
    loss = saved.progress.val_loss
    known = f", validation loss {loss:.4f}" if loss is not None else ""
    return [
        f"{options.output}: {count_parameters(saved.model):,} parameters, "
        f"{saved.model.vocab_size} characters, {saved.progress.step:,} steps{known}"
    ]


def read(path: Path, meta: Path | None) -> Checkpoint:
    """Return what nanoGPT's ckpt.pt and meta.pkl hold, as a checkpoint of ours."""
    content = _load_weights(existing_file(path, "nanoGPT's checkpoint"))
    try:
        arguments = {"bias": True, "dropout": 0.0} | content["model_args"]  # its own defaults
        characters = _characters_of(path, arguments["vocab_size"], meta)
        tensors = _arrays(content["model"])
        return _checkpoint(_model_config(arguments, tensors), characters, tensors, content)
    except UserError:
        raise
    except KeyError as error:
        raise _not_nanogpt(path, f"{error} is missing") from None
    except (TypeError, AttributeError, ValueError) as error:
        raise _not_nanogpt(path, str(error)) from None


def _characters_of(path: Path, vocab_size: int, meta: Path | None) -> str:
    """Return the model's characters. Raises UserError unless `meta` has one for each id."""
    if vocab_size in GPT2_VOCABULARIES:
        raise UserError(
            f"{path} reads GPT-2's {vocab_size} tokens, which are pieces of words; sancho reads "
            "characters: take a model of nanoGPT's shakespeare_char kind"
        )
    if meta is None:
        raise UserError(
            "--meta is missing: give the meta.pkl that nanoGPT's prepare.py wrote beside "
            "train.bin; it holds the characters"
        )
    characters = read_characters(meta)
    if len(characters) != vocab_size:
        raise UserError(
            f"{meta} has {len(characters)} characters, {path} has {vocab_size}; give the meta.pkl "
            "of the text that the model was trained on"
        )
    return characters


def _checkpoint(model: ModelConfig, characters: str, tensors: dict, content: dict) -> Checkpoint:
    config = content.get("config", {})
    train, step = _train_config(config), content.get("iter_num", 0)
    loss = content.get("best_val_loss")
    loss = None if loss is None else float(loss)  # a tensor
    progress = {
        "step": step,
        "tokens": step * train.characters_per_step(model),
        "val_loss": loss,
        "best_val_loss": loss,
    }
    return Checkpoint(
        model=model,
        characters=characters,
        train=train,
        progress=from_dict(Progress, progress),
        corpus_name=str(config.get("dataset", "")),
        corpus_sha256="",
        weights=_weights(model, tensors),
    )


def _model_config(arguments: dict, tensors: dict[str, np.ndarray]) -> ModelConfig:
    """Return the shape: GPT-2's with an exact GELU, with or without biases."""
    head, embedding = tensors["lm_head.weight"], tensors["transformer.wte.weight"]
    names = ("vocab_size", "block_size", "n_layer", "n_head", "n_embd", "bias")
    return from_dict(
        ModelConfig,
        {name: arguments[name] for name in names}
        | {
            "dropout": float(arguments["dropout"]),
            "norm": "layernorm",
            "position": "learned",
            "activation": "gelu",
            "qk_norm": False,
            "tie_embeddings": np.array_equal(head, embedding),
        },
    )


def _train_config(config: dict) -> TrainConfig:
    """Return how it was trained, where nanoGPT's options are called and mean as ours."""
    known = {option.name for option in fields(TrainConfig)} - {"optimizer"}
    values = {name: value for name, value in config.items() if name in known}
    return from_dict(TrainConfig, values | {"optimizer": "adamw"})


def _weights(model: ModelConfig, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the weights by our names. Raises ValueError unless they are what the shape asks for.

    (out, in) in nanoGPT as here, and queries, keys and values in the same order.
    """
    if model.n_layer > len(tensors):  # from a hostile file; don't list them all
        raise ValueError(f"it has too few tensors for {model.n_layer} layers")
    shapes = weight_shapes(model)
    theirs = {name: _their_name(name) for name in shapes}
    if unknown := sorted(tensors.keys() - theirs.values()):
        raise ValueError(f"tensor {unknown[0]} is unknown")
    for ours, name in theirs.items():
        if tensors[name].shape != shapes[ours]:
            raise ValueError(f"tensor {name} has shape {tensors[name].shape}, not {shapes[ours]}")
        if not np.isfinite(tensors[name]).all():
            raise ValueError(f"tensor {name} holds numbers that are not finite")
    return {ours: tensors[name] for ours, name in theirs.items()}


def _their_name(name: str) -> str:
    """Return blocks.0.norm1.weight as transformer.h.0.ln_1.weight."""
    part, _, kind = name.rpartition(".")
    block = re.fullmatch(r"blocks\.(\d+)\.(.+)", part)
    return (
        f"transformer.h.{block[1]}.{NAMES[block[2]]}.{kind}" if block else f"{NAMES[part]}.{kind}"
    )


# --- pickles --------------------------------------------------------------------------------


def _load_weights(path: Path) -> dict[str, Any]:
    """Return what torch.save wrote. Raises UserError for whatever is more than weights."""
    import torch  # not above: the export to a page needs no PyTorch

    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (MemoryError, OSError):
        raise
    except Exception as error:  # a damaged pickle may raise anything
        named = re.search(r"GLOBAL ([\w.]+)", str(error))
        if named:
            raise _refused(path, named[1]) from None
        raise _not_nanogpt(path, "PyTorch can't read it as weights") from None
    if not isinstance(content, dict):
        raise _not_nanogpt(path, f"it holds a {type(content).__name__}")
    return content


def _arrays(tensors: dict) -> dict[str, np.ndarray]:
    """Return the weights as nanoGPT names them, without what torch.compile puts before a name.

    An old nanoGPT also kept each block's mask, attn.bias.
    """
    tensors = {name.removeprefix("_orig_mod."): tensor for name, tensor in tensors.items()}
    return {
        name: tensor.detach().float().contiguous().numpy()
        for name, tensor in tensors.items()
        if not name.endswith(".attn.bias")
    }


class _Call(Exception):
    """A pickle asks for a function of Python's."""


class _PlainUnpickler(pickle.Unpickler):
    """Reads pickles of numbers, strings, lists and dictionaries."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Raise _Call that names what the pickle asks for."""
        raise _Call(f"{module}.{name}")


def read_characters(path: Path) -> str:
    """Return the characters of a meta.pkl, in the order of their ids."""
    data = existing_file(path, "nanoGPT's meta").read_bytes()
    try:
        itos = _PlainUnpickler(io.BytesIO(data)).load()["itos"]
        characters = [itos[i] for i in range(len(itos))]
        "".join(characters).encode()  # half of a surrogate pair is no character
    except _Call as call:
        raise _refused(path, str(call)) from None
    except Exception as error:  # a damaged pickle may raise anything
        raise _not_meta(path, f"{type(error).__name__}: {error}") from None
    if any(len(c) != 1 for c in characters) or len(set(characters)) != len(characters):
        raise _not_meta(path, "its tokens are not single characters")
    return "".join(characters)


def _refused(path: Path, function: str) -> UserError:
    return UserError(
        f"{path} is refused: to open it would call {function}, and what nanoGPT writes calls "
        "nothing; do not open it elsewhere either"
    )


def _not_nanogpt(path: Path, why: str) -> UserError:
    return UserError(f"{path} is no checkpoint of nanoGPT's, or damaged: {why}; use its ckpt.pt")


def _not_meta(path: Path, why: str) -> UserError:
    return UserError(
        f"{path} is no meta.pkl of a character model: {why}; use what prepare.py wrote"
    )
