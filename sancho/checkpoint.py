"""Checkpoints: one safetensors file that is enough by itself, and the names and shapes in it.

Tensors are named "model.…" and "optimizer.…"; vocabulary, configuration and progress are JSON in
the file's metadata. A file is checked before it is believed, and nothing in it is ever executed.
Tensors are NumPy arrays here, so that a page can be written without importing PyTorch.
"""

import hashlib
import json
import math
import platform
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import safetensors
import safetensors.numpy

from sancho.config import ModelConfig, TrainConfig, from_dict
from sancho.errors import MissingFile, UserError
from sancho.machine.files import atomic_write, existing_file
from sancho.machine.shell import command
from sancho.tokenizer import CharTokenizer

if TYPE_CHECKING:
    from sancho.model import GPT
    from sancho.numpy_model import NumpyGPT

Arrays = dict[str, np.ndarray]
Shapes = dict[str, tuple[int, ...]]

FORMAT, VERSION = "sancho-mini", 2
PRETRAINED = Path(__file__).parent / "pretrained" / "sancho.safetensors"
OWN = Path("out/best.safetensors")
"""What train.py leaves, if it is not told otherwise."""


@dataclass
class Progress:
    """How far a run has come."""

    step: int = 0
    """Optimizer steps done."""
    tokens: int = 0
    """Characters trained on."""
    seconds: float = 0.0
    """Time spent training, evaluations included."""
    val_loss: float | None = None
    """At the last evaluation, nats per character."""
    best_val_loss: float | None = None
    """Lowest so far."""
    evaluations_since_best: int = 0
    """How many evaluations have passed without a better one."""
    recent_losses: list[float] = field(default_factory=list)
    """Training losses of the steps since the last report."""

    def __post_init__(self) -> None:
        """Raise ValueError for what no run can come to."""
        for name in ("step", "tokens", "seconds", "evaluations_since_best"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)!r}")
        for loss in (self.val_loss, self.best_val_loss, *self.recent_losses):
            if loss is not None and not math.isfinite(loss):
                raise ValueError(f"a loss is {loss!r}")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What a checkpoint file holds."""

    model: ModelConfig
    characters: str
    train: TrainConfig
    progress: Progress
    corpus_name: str
    corpus_sha256: str
    weights: Arrays
    """By the names of `weight_shapes`."""
    optimizer: Arrays = field(default_factory=dict)
    """By "weight.state"; empty where training can't go on."""

    @property
    def tokenizer(self) -> CharTokenizer:
        """The vocabulary that the model was trained with."""
        return CharTokenizer(self.characters)

    def build_model(self) -> "GPT":
        """Return the model as a PyTorch module, in evaluation mode, on the CPU."""
        from sancho.model import GPT  # not above: to write on a CPU takes no PyTorch

        return GPT.with_weights(self.model, self.weights).eval()

    def build_numpy(self) -> "NumpyGPT":
        """Return the model for inference in NumPy."""
        from sancho.numpy_model import NumpyGPT

        return NumpyGPT(self.model, self.weights)

    def in_half_precision(self) -> "Checkpoint":
        """Return it with float16 weights and no optimizer: half the size, to hand on."""
        weights = {name: array.astype(np.float16) for name, array in self.weights.items()}
        return replace(self, weights=weights, optimizer={})


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; whatever happens, `path` holds the old one or the new one, whole."""
    tensors = {f"model.{name}": array for name, array in checkpoint.weights.items()}
    tensors |= {f"optimizer.{name}": array for name, array in checkpoint.optimizer.items()}
    # safetensors writes an array as it lies in memory.
    tensors = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    content = json.dumps(
        {
            "model": asdict(checkpoint.model),
            "characters": checkpoint.characters,
            "train": asdict(checkpoint.train),
            "progress": asdict(checkpoint.progress),
            "corpus": {"name": checkpoint.corpus_name, "sha256": checkpoint.corpus_sha256},
            "versions": {"torch": version("torch"), "python": platform.python_version()},
        }
    )
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "content": content,
        "sha256": _digest(content, tensors),
    }
    with atomic_write(path) as file:
        file.write(safetensors.numpy.save(tensors, metadata))


def load_or_pretrained(path: Path | None) -> Checkpoint:
    """Read the checkpoint at `path`; without one, OWN, or what comes with the project.

    Raises as `load` does; warns where nothing has been trained yet.
    """
    if path is None and not OWN.exists():
        warnings.warn(
            f"there is no {OWN} yet: this is the sancho that comes with the project; train your "
            f"own with: {command('train.py')}",
            stacklevel=2,
        )
        return pretrained()
    return load(path or OWN)


def pretrained() -> Checkpoint:
    """Read the sancho that comes with the project: a plain GPT that has read Don Quijote."""
    return load(PRETRAINED)


def load(path: Path) -> Checkpoint:
    """Read a checkpoint; weights in half precision become float32.

    Raises MissingFile or UserError for anything that is not a sound one.
    """
    path = Path(path)
    last = path.parent / "last.safetensors"
    if not path.exists() and last.exists():
        raise MissingFile(f"the checkpoint {path} does not exist (yet); but there is {last}")
    metadata, tensors = _read(existing_file(path, "the checkpoint"))
    try:
        if _digest(metadata["content"], tensors) != metadata.get("sha256"):
            raise ValueError("its checksum does not fit its content")
        checkpoint = _from_content(json.loads(metadata["content"]), tensors)
        _check_weights(checkpoint)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(path, error) from None
    weights = {name: a.astype(np.float32, copy=False) for name, a in checkpoint.weights.items()}
    return replace(checkpoint, weights=weights)


def _read(path: Path) -> tuple[dict[str, str], Arrays]:
    """Return the metadata and the tensors of a safetensors file of ours."""
    with open(path, "rb") as file:
        start = file.read(9)
    if not start:
        raise UserError(f"the checkpoint {path} is empty; use another checkpoint")
    if start[8:] != b"{":  # a header's length stands before it, which may begin like a pickle
        if start[:2] == b"PK" or start[:1] == b"\x80":
            raise UserError(
                f"{path} is a pickle (.pt or .pkl): it can run code when opened, so it is refused; "
                "sancho reads the .safetensors files that train.py writes"
            )
        raise UserError(f"{path} is not a safetensors file; use one that train.py wrote")
    tensors = {}
    try:
        with safetensors.safe_open(path, "numpy") as file:
            metadata = file.metadata() or {}
            _check_metadata(path, metadata)
            for name in file.keys():  # noqa: SIM118
                tensors[name] = file.get_tensor(name)
    except safetensors.SafetensorError as error:
        raise _damaged(path, error) from None
    except (TypeError, AttributeError) as error:  # a type that NumPy does not have
        raise _damaged(path, f"tensor {name}: {error}") from None
    return metadata, tensors


def _check_metadata(path: Path, metadata: dict[str, str]) -> None:
    if metadata.get("format") != FORMAT:
        raise UserError(f"{path} is not a checkpoint of sancho-mini; use one that train.py wrote")
    if metadata.get("version") != str(VERSION):
        raise UserError(
            f"{path} has format version {metadata.get('version')}, this program reads version "
            f"{VERSION}; use the sancho-mini that wrote it"
        )
    if "content" not in metadata:
        raise _damaged(path, "it has no configuration")


def _damaged(path: Path, why: object) -> UserError:
    return UserError(f"the checkpoint {path} is damaged: {why}; use another checkpoint")


def _from_content(content: dict, tensors: Arrays) -> Checkpoint:
    def part(prefix: str) -> Arrays:
        return {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}

    return Checkpoint(
        model=from_dict(ModelConfig, content["model"]),
        characters=_text(content["characters"]),
        train=from_dict(TrainConfig, content["train"]),
        progress=from_dict(Progress, content["progress"]),
        corpus_name=_text(content["corpus"]["name"]),
        corpus_sha256=_text(content["corpus"]["sha256"]),
        weights=part("model."),
        optimizer=part("optimizer."),
    )


def _text(value: object) -> str:
    """Return a text that can be written, which half of a surrogate pair can't be."""
    return str(value).encode().decode()


def _check_weights(checkpoint: Checkpoint) -> None:
    """Raise ValueError unless the tensors are those of the model, and finite."""
    config, weights = checkpoint.model, checkpoint.weights
    if checkpoint.tokenizer.vocab_size != config.vocab_size:
        raise ValueError("its vocabulary is not as large as its model's")
    expected = weight_shapes(config)
    for name in sorted(expected.keys() | weights.keys()):
        if name not in weights or name not in expected:
            raise ValueError(f"tensor {name} is {'missing' if name in expected else 'unknown'}")
        _check_shape(name, weights[name], expected[name], ("float32", "float16"))
        if not np.isfinite(weights[name]).all():
            raise ValueError(f"tensor {name} holds numbers that are not finite")
    for j in range(checkpoint.train.look_ahead if checkpoint.optimizer else 0):
        expected[f"look_ahead.{j}"] = expected["head.weight"]
        if f"look_ahead.{j}.weight" not in checkpoint.optimizer:
            raise ValueError(f"tensor look_ahead.{j}.weight is missing")
    for name, tensor in checkpoint.optimizer.items():
        owner, _, key = name.rpartition(".")
        if owner not in expected:
            raise ValueError(f"tensor {name} belongs to no weight")
        shape = expected[owner]
        other = {"step": shape[:0], "sum": shape[:1]}  # one number for all, one for each row
        _check_shape(name, tensor, other.get(key, shape))


def _check_shape(
    name: str, array: np.ndarray, shape: tuple[int, ...], types: Sequence[str] = ("float32",)
) -> None:
    if array.shape != shape or str(array.dtype) not in types:
        found = f"{array.shape} of {array.dtype}"
        raise ValueError(f"tensor {name} has shape {found}, not {shape} of {' or '.join(types)}")


def _digest(content: str, tensors: Arrays) -> str:
    digest = hashlib.sha256(content.encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"{name} torch.{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


# --- names and shapes -----------------------------------------------------------------------


def weight_shapes(config: ModelConfig) -> Shapes:
    """Return the shape of every weight by its name, in the order of the forward pass.

    All are float32, row after row. With C = n_embd, H heads of D = C / H channels, V characters:

    - A matrix of shape (out, in) maps x, (…, in), to x · Wᵀ + bias, as torch.nn.Linear does.
    - `attention.qkv` gives the queries of all heads, then the keys, then the values: 3·H·D rows.
    - Rotary positions rotate the channels (2j, 2j + 1) of queries and keys together, by the angle
      t / 10000^(2j/D) at position t, before they are normalised.
    - `feed_forward.expand` of a gated activation gives the factors first and then the gates: the
      output is factor · activation(gate).
    - `ngram_embedding` is the table of ngrams.py; `skips` are the strengths with which the
      embedding is added before each block (the first one is not used).
    - A tied output head is stored twice.
    """
    C, V, hidden = config.n_embd, config.vocab_size, config.hidden_size

    def linear(name: str, *shape: int) -> Shapes:
        bias: Shapes = {f"{name}.bias": shape[:1]} if config.bias else {}
        return {f"{name}.weight": shape} | bias

    def norm(name: str) -> Shapes:
        return linear(name, C) if config.norm == "layernorm" else {}

    shapes: Shapes = {"token_embedding.weight": (V, C)}
    if config.ngram_size > 1:
        shapes["ngram_embedding.weight"] = (config.ngram_rows, C)
    if config.position == "learned":
        shapes["position_embedding.weight"] = (config.block_size, C)
    if config.embedding_skip:
        shapes["skips"] = (config.n_layer,)
    for layer in range(config.n_layer):
        block = f"blocks.{layer}"
        shapes |= norm(f"{block}.norm1")
        shapes |= linear(f"{block}.attention.qkv", 3 * C, C)
        shapes |= linear(f"{block}.attention.proj", C, C)
        shapes |= norm(f"{block}.norm2")
        shapes |= linear(f"{block}.feed_forward.expand", hidden * (1 + config.is_gated), C)
        shapes |= linear(f"{block}.feed_forward.proj", C, hidden)
    return shapes | norm("norm") | {"head.weight": (V, C)}


def count_parameters(config: ModelConfig) -> int:
    """Return the number of trained weights, those of a tied head once."""
    total = sum(math.prod(shape) for shape in weight_shapes(config).values())
    return total - config.tie_embeddings * config.vocab_size * config.n_embd
