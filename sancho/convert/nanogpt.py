"""Import of nanoGPT's character models (github.com/karpathy/nanoGPT).

nanoGPT keeps two pickles: ckpt.pt, which train.py writes, and meta.pkl, in which prepare.py keeps
the characters. A pickle may ask Python to call any function. Here none is called: PyTorch reads
ckpt.pt as weights alone, and meta.pkl is read by a class that finds no function.

Until 14 June 2023 nanoGPT computed GELU by its tanh approximation, since then exactly. Here it is
exact, and the command says whether the checkpoint shows that it was trained with the approximation.
"""

import io
import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NoReturn, TypeVar

import numpy as np

from sancho import checkpoint
from sancho.checkpoint import Checkpoint, Progress
from sancho.config import Checked, ModelConfig, TrainConfig, from_dict
from sancho.convert.output import check_new
from sancho.errors import UserError
from sancho.files import existing_file
from sancho.weights import count_parameters, weight_shapes

Config = TypeVar("Config")
GPT2_VOCABULARIES = (50257, 50304)
"""The number of GPT-2's tokens, and that rounded up to a multiple of 64."""
MOST_CHARACTERS = 65536
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
"""What GPT-2 calls the parts, and nanoGPT with it, by our names."""


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
    saved, note = load_nanogpt(options.checkpoint, options.meta)
    checkpoint.save(options.output, saved)
    loss = saved.progress.val_loss
    known = f", validation loss {loss:.4f}" if loss is not None else ""
    return [
        f"{options.output}: {count_parameters(saved.model_config):,} parameters, "
        f"{saved.model_config.vocab_size} characters, {saved.progress.step:,} steps{known}",
        note,
    ]


def load_nanogpt(path: str | Path, meta: str | Path | None) -> tuple[Checkpoint, str]:
    """Return nanoGPT's ckpt.pt and meta.pkl as a checkpoint of ours, and a note on its GELU.

    Raises UserError for a file that is not of nanoGPT's making, damaged or hostile.
    """
    import torch  # not above: the export to a page needs no PyTorch

    path = existing_file(Path(path), "nanoGPT's checkpoint")
    with _explained(path, "no checkpoint of nanoGPT's, or damaged", "its ckpt.pt"):
        content = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(content, dict):
            raise ValueError(f"it holds a {type(content).__name__}")
        arguments = {"bias": True, "dropout": 0.0} | content["model_args"]  # its own defaults
        characters = _characters_of(path, arguments["vocab_size"], meta)
        tensors = _arrays(content["model"])
        model = _model_config(arguments, tensors)
        config = content.get("config", {})
        train = _train_config(config)
        saved = Checkpoint(
            model_config=model,
            characters=characters,
            train_config=train,
            progress=_progress(content, train.characters_per_step(model)),
            corpus_name=str(config.get("dataset", "")),
            corpus_sha256="",
            weights=_weights(model, tensors),
        )
        return saved, _note_on_gelu(content)


def _characters_of(path: Path, vocab_size: int, meta: str | Path | None) -> str:
    """Return the model's characters. Raises UserError unless `meta` has one for each id."""
    if vocab_size in GPT2_VOCABULARIES:
        raise UserError(
            f"{path} reads GPT-2's {vocab_size} tokens, which are pieces of words; sancho reads "
            "characters: take a model of nanoGPT's shakespeare_char kind"
        )
    if vocab_size > MOST_CHARACTERS:
        raise UserError(
            f"{path} has {vocab_size} different characters and sancho takes {MOST_CHARACTERS} at "
            "most; take a model of a text with fewer"
        )
    if meta is None:
        raise UserError(
            "--meta is missing: give the meta.pkl that nanoGPT's prepare.py wrote beside "
            "train.bin; it holds the characters"
        )
    characters = _read_characters(Path(meta))
    if len(characters) != vocab_size:
        raise UserError(
            f"{meta} has {len(characters)} characters, {path} has {vocab_size}; give the meta.pkl "
            "of the text that the model was trained on"
        )
    return characters


def _model_config(arguments: dict, tensors: dict[str, np.ndarray]) -> ModelConfig:
    """Return the shape: GPT-2's with an exact GELU, with or without biases."""
    names = ("vocab_size", "block_size", "n_layer", "n_head", "n_embd", "bias")
    values = {name: arguments[name] for name in names} | {
        "dropout": float(arguments["dropout"]),
        "norm": "layernorm",
        "position": "learned",
        "activation": "gelu",
        "ngram_size": 1,
        "embedding_skip": False,
        "qk_norm": False,
        "tie_embeddings": np.array_equal(
            tensors["lm_head.weight"], tensors["transformer.wte.weight"]
        ),
    }
    return _from_file(ModelConfig, values)


def _train_config(config: dict) -> TrainConfig:
    """Return how it was trained, where nanoGPT's options are called and mean as ours."""
    known = {option.name for option in fields(TrainConfig)}
    values = {name: value for name, value in config.items() if name in known}
    return _from_file(TrainConfig, values | {"optimizer": "adamw", "look_ahead": 0})


def _from_file(kind: type[Config], values: dict) -> Config:
    """Return what `from_dict` does; raise ValueError for a UserError, which names an option."""
    try:
        return from_dict(kind, values)
    except UserError as error:
        raise ValueError(str(error).removeprefix("--")) from None


def _progress(content: dict, characters_per_step: int) -> Progress:
    step = content.get("iter_num", 0)
    loss = content.get("best_val_loss")
    if loss is not None:
        loss = float(loss)  # a tensor
    values = {
        "step": step,
        "tokens": step * characters_per_step,
        "val_loss": loss,
        "best_val_loss": loss,
    }
    return _from_file(Progress, values)


def _weights(model: ModelConfig, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the weights by our names. Raises ValueError unless they have the shapes of the model.

    Matrices are (out, in) in nanoGPT as here, and queries, keys and values come in the same order.
    """
    if model.n_layer > len(tensors):  # a hostile file may ask for a list of a billion layers
        raise ValueError(f"it has too few tensors for {model.n_layer} layers")
    weights = {}
    rest = dict(tensors)
    for ours, shape in weight_shapes(model).items():
        name = gpt2_name(ours)
        tensor = rest.pop(name)
        if tensor.shape != shape:
            raise ValueError(f"tensor {name} has shape {tensor.shape}, not {shape}")
        if not np.isfinite(tensor).all():
            raise ValueError(f"tensor {name} holds numbers that are not finite")
        weights[ours] = tensor
    if rest:
        raise ValueError(f"tensor {min(rest)} is unknown")
    return weights


def _note_on_gelu(content: dict) -> str:
    """Return a line on which GELU nanoGPT had and which one is here.

    It had the approximation for certain where `bias` was no argument yet (until 27 January 2023),
    or where AdamW did not decay the embeddings, but four matrices in each block (until 6 May).
    """
    arguments = content["model_args"]
    optimizer = content.get("optimizer") or {}
    groups = optimizer.get("param_groups") or [{}]
    decayed = groups[0].get("params", ())
    if "bias" not in arguments or len(decayed) == 4 * arguments["n_layer"]:
        return (
            "it was trained with the tanh approximation of GELU that nanoGPT had until June 2023; "
            "here GELU is exact, which changes an activation by 0.0005 at most"
        )
    return (
        "an exact GELU is assumed, as nanoGPT has it since 14 June 2023; before, it had a tanh "
        "approximation, which changes an activation by 0.0005 at most"
    )


def gpt2_name(name: str) -> str:
    """Return blocks.0.norm1.weight as transformer.h.0.ln_1.weight."""
    part, _, kind = name.rpartition(".")
    if block := re.fullmatch(r"blocks\.(\d+)\.(.+)", part):
        return f"transformer.h.{block[1]}.{NAMES[block[2]]}.{kind}"
    return f"{NAMES[part]}.{kind}"


# --- pickles --------------------------------------------------------------------------------


def _arrays(tensors: dict) -> dict[str, np.ndarray]:
    """Return the weights as nanoGPT names them, without what torch.compile puts before a name.

    An old nanoGPT also kept each block's mask, attn.bias.
    """
    return {
        name.removeprefix("_orig_mod."): tensor.detach().float().contiguous().numpy()
        for name, tensor in tensors.items()
        if not name.endswith(".attn.bias")
    }


class _PlainUnpickler(pickle.Unpickler):
    """Reads pickles of numbers, strings, lists and dictionaries."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Raise an error that names what the pickle asks for, as PyTorch's does."""
        raise pickle.UnpicklingError(f"GLOBAL {module}.{name}")


def _read_characters(path: Path) -> str:
    """Return the characters of a meta.pkl, in the order of their ids."""
    data = existing_file(path, "nanoGPT's meta").read_bytes()
    with _explained(path, "no meta.pkl of a character model", "what prepare.py wrote"):
        itos = _PlainUnpickler(io.BytesIO(data)).load()["itos"]
        characters = [itos[i] for i in range(len(itos))]
        text = "".join(characters)
        text.encode()  # fails for half of a surrogate pair, which is no character
        if any(len(character) != 1 for character in characters):
            raise ValueError("its tokens are not single characters")
        if len(set(characters)) != len(characters):
            raise ValueError("it has a character twice")
        return text


@contextmanager
def _explained(path: Path, what: str, use: str) -> Iterator[None]:
    """Raise a UserError that says what is wrong with a file, whatever error reading it raises."""
    try:
        yield
    except (UserError, OSError, MemoryError):
        raise
    except Exception as error:  # a damaged pickle may raise anything
        if asked := re.search(r"GLOBAL ([\w.]+)", str(error)):
            raise UserError(
                f"{path} is refused: to open it would call {asked[1]}, and what nanoGPT writes "
                "calls nothing; do not open it elsewhere either"
            ) from None
        why = "it can't be read"  # PyTorch's own words advise to open it all the same
        if isinstance(error, KeyError):
            why = f"{error} is missing"
        elif isinstance(error, TypeError | AttributeError | ValueError):
            why = str(error)
        raise UserError(f"{path} is {what}: {why}; use {use}") from None
