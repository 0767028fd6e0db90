"""Checkpoints: one safetensors file that is enough by itself, and the names and shapes in it.

Tensors are named "model.…" and "optimizer.…"; all else is JSON in the file's metadata. A file is
checked before it is believed, and nothing in it is ever executed.
"""

import hashlib
import json
import math
import platform
import warnings
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import safetensors.numpy

from sancho.config import ModelConfig, RunConfig, TrainConfig, from_dict
from sancho.errors import MissingFile, UserError
from sancho.machine.files import atomic_write, existing_file
from sancho.ngrams import NO_KEY
from sancho.tokenizer import CharTokenizer

if TYPE_CHECKING:
    from sancho.model import GPT
    from sancho.numpy_model import NumpyGPT

Arrays = dict[str, np.ndarray]
Shapes = dict[str, tuple[int, ...]]

FORMAT, VERSION = "sancho-mini", 3  # 2 had no vocabulary of n-grams
NGRAM_KEYS = "ngram_embedding.keys"
PRETRAINED = Path(__file__).parent / "pretrained" / "sancho.safetensors"
DEFAULT_CHECKPOINT = Path("out/best.safetensors")
"""What train.py leaves, if it is not told otherwise."""


@dataclass
class Progress:
    """How far a run has come."""

    step: int = 0
    tokens: int = 0
    """Characters trained on."""
    seconds: float = 0.0
    """Time spent training, evaluations included."""
    evaluated_step: int = 0
    """The step after which the last evaluation was made."""
    val_loss: float | None = None
    """At the last evaluation, nats per character."""
    best_val_loss: float | None = None
    evaluations_since_best: int = 0
    recent_losses: list[float] = field(default_factory=list)
    """Training losses of the steps since the last report."""

    def __post_init__(self) -> None:
        """Raise ValueError for what no run can come to."""
        counted = [self.step, self.tokens, self.seconds, self.evaluated_step]
        counted.append(self.evaluations_since_best)
        losses = [self.val_loss or 0, self.best_val_loss or 0, *self.recent_losses]
        if min(counted) < 0 or not all(map(math.isfinite, [*counted, *losses])):
            raise ValueError(f"step {self.step} or a loss after it is no number that a run has")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What a checkpoint file holds."""

    model: ModelConfig
    characters: str
    train: TrainConfig
    run: RunConfig = field(default_factory=RunConfig)
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


def save(path: str | Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; whatever happens, `path` holds the old one or the new one, whole."""
    tensors = {f"model.{name}": array for name, array in checkpoint.weights.items()}
    tensors |= {f"optimizer.{name}": array for name, array in checkpoint.optimizer.items()}
    # safetensors writes an array as it lies in memory.
    tensors = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    versions = {"python": platform.python_version()}
    with suppress(PackageNotFoundError):  # to write takes no PyTorch
        versions["torch"] = version("torch")
    parts = ("model", "train", "run", "progress")
    content = json.dumps(
        {part: asdict(getattr(checkpoint, part)) for part in parts}
        | {
            "characters": checkpoint.characters,
            "corpus": {"name": checkpoint.corpus_name, "sha256": checkpoint.corpus_sha256},
            "versions": versions,
        }
    )
    metadata = {"format": FORMAT, "version": str(VERSION), "content": content}
    metadata["sha256"] = _digest(content, tensors)
    with atomic_write(path) as file:
        file.write(safetensors.numpy.save(tensors, metadata))


def find_checkpoint(name: str | Path | None) -> Path:
    """Return the path of the checkpoint that was asked for, whether it exists or not.

    "pretrained", where no file is called so, is the pretrained model that comes with the project.
    Without a name it is DEFAULT_CHECKPOINT; where that is missing, the pretrained model, with a
    warning.
    """
    if name is None and not DEFAULT_CHECKPOINT.exists():
        what = "the pretrained model that comes with the project; train your own with train.py"
        warnings.warn(f"there is no {DEFAULT_CHECKPOINT} yet: this is {what}", stacklevel=3)
        return PRETRAINED
    path = Path(name or DEFAULT_CHECKPOINT)
    if path == Path("pretrained") and not path.is_file():
        return PRETRAINED
    return path


def load_or_pretrained(name: str | Path | None) -> Checkpoint:
    """Read what `find_checkpoint` finds. Raises as `load` does."""
    return load(find_checkpoint(name))


def pretrained() -> Checkpoint:
    """Read the pretrained model that comes with the project."""
    return load(PRETRAINED)


def load(path: str | Path) -> Checkpoint:
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
        saved = _from_content(json.loads(metadata["content"]), tensors)
        _check_weights(saved)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(path, error) from None
    weights = dict(saved.weights)
    for name, weight in weights.items():
        if weight.dtype == np.float16:
            weights[name] = weight.astype(np.float32)
    return replace(saved, weights=weights)


def _read(path: Path) -> tuple[dict[str, str], Arrays]:
    with open(path, "rb") as file:
        start = file.read(9)
    if start[8:] != b"{":  # a header's length stands before it, which may begin like a pickle
        what = "is not a safetensors file"
        if start[:2] == b"PK" or start[:1] == b"\x80":
            what = "is a pickle (.pt or .pkl): it can run code when opened, so it is refused"
        raise UserError(f"{path} {what if start else 'is empty'}; use one that train.py wrote")
    try:
        with safetensors.safe_open(path, "numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise UserError(f"{path} is no checkpoint of sancho-mini; use one from train.py")
            if metadata.get("version") not in ("2", str(VERSION)):
                versions = f"version {metadata.get('version')}, this program reads {VERSION}"
                raise UserError(f"{path} has {versions}; use the sancho-mini that wrote it")
            return metadata, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, TypeError, AttributeError) as error:
        raise _damaged(path, error) from None  # the last two: a type that NumPy does not have


def _damaged(path: Path, error: Exception) -> UserError:
    why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    return UserError(f"the checkpoint {path} is damaged: {why}; use another checkpoint")


def _from_content(content: dict, tensors: Arrays) -> Checkpoint:
    def part(prefix: str) -> Arrays:
        return {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}

    # What an older file leaves out had one value only when it was written.
    model = from_dict(ModelConfig, {"ngram_vocabulary": False} | content["model"])
    train = from_dict(TrainConfig, {"look_ahead": 0} | content["train"])
    run = content.get("run", {})
    if isinstance(run, dict) and run.get("compile", False) is None:  # it was left to the program
        run = run | {"compile": False}
    progress = from_dict(Progress, content["progress"])
    if "evaluated_step" not in content["progress"] and progress.val_loss is not None:
        is_end = progress.step == train.max_iters
        since = 0 if is_end else progress.step % train.eval_interval
        progress.evaluated_step = progress.step - since
    return Checkpoint(
        model=model,
        characters=_text(content["characters"]),
        train=train,
        run=from_dict(RunConfig, run),
        progress=progress,
        corpus_name=_text(content["corpus"]["name"]),
        corpus_sha256=_text(content["corpus"]["sha256"]),
        weights=part("model."),
        optimizer=part("optimizer."),
    )


def _text(value: object) -> str:
    return str(value).encode().decode()  # half of a surrogate pair can't be written


def _check_weights(checkpoint: Checkpoint) -> None:
    if checkpoint.tokenizer.vocab_size != checkpoint.model.vocab_size:
        raise ValueError("its vocabulary is not as large as its model's")
    shapes = weight_shapes(checkpoint.model)
    _compare(checkpoint.weights, shapes, "float32", "float16")
    for name, weight in checkpoint.weights.items():
        if not np.isfinite(weight).all():
            raise ValueError(f"tensor {name} holds numbers that are not finite")
    keys = checkpoint.weights.get(NGRAM_KEYS, np.array([NO_KEY]))
    if keys[-1] != NO_KEY or (keys[1:] < keys[:-1]).any():
        raise ValueError(f"tensor {NGRAM_KEYS} does not ascend to {NO_KEY}")
    if not checkpoint.optimizer:
        return
    heads = {f"look_ahead.{j}": shapes["head.weight"] for j in range(checkpoint.train.look_ahead)}
    expected = {f"{head}.weight": shape for head, shape in heads.items()}
    for name in checkpoint.optimizer.keys() - expected.keys():
        owner, _, key = name.rpartition(".")
        shape = (shapes | heads).get(owner)
        if shape is None:
            raise ValueError(f"tensor {name} belongs to no weight")
        if key == "step":  # one number for all
            expected[name] = ()
        elif key == "sum":  # one for each row
            expected[name] = shape[:1]
        else:
            expected[name] = shape
    _compare(checkpoint.optimizer, expected, "float32")


def _compare(arrays: Arrays, shapes: Shapes, *types: str) -> None:
    for name in sorted(shapes.keys() | arrays.keys()):
        array = arrays.get(name, np.empty(0))
        kinds = ("int32",) if name == NGRAM_KEYS else types
        if array.shape != shapes.get(name) or array.dtype not in kinds:
            found = f"{array.dtype} {array.shape}" if name in arrays else "missing"
            wanted = f"{kinds[0]} {shapes[name]}" if name in shapes else "no such tensor"
            raise ValueError(f"tensor {name} is {found}; there should be {wanted}")


def _digest(content: str, tensors: Arrays) -> str:
    digest = hashlib.sha256(content.encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"{name} torch.{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def weight_shapes(config: ModelConfig) -> Shapes:
    """Return the shape of every weight by its name, in the order of the forward pass.

    All are float32, row after row, but for the keys of n-grams, which are int32. With C = n_embd,
    H heads of D = C / H channels, V characters:

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
        if config.ngram_vocabulary:
            shapes[NGRAM_KEYS] = (config.ngram_rows,)
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
    shapes = weight_shapes(config)
    total = sum(math.prod(shape) for name, shape in shapes.items() if name != NGRAM_KEYS)
    return total - config.tie_embeddings * config.vocab_size * config.n_embd
