"""One safetensors file that is enough by itself: weights, vocabulary, configuration, progress.

Tensors are named "model.…" and "optimizer.…"; everything else is JSON in the file's metadata.
A file is checked before it is believed, and nothing in it is ever executed.
"""

import hashlib
import json
import math
import platform
from dataclasses import asdict, dataclass, field
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from sancho.config import ModelConfig, TrainConfig, from_dict
from sancho.errors import MissingFile, UserError
from sancho.files import atomic_write, existing_file
from sancho.model import GPT
from sancho.tokenizer import CharTokenizer

FORMAT, VERSION = "sancho-mini", 2
HEADER_LIMIT = 100_000_000


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
    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor] = field(default_factory=dict)

    @property
    def tokenizer(self) -> CharTokenizer:
        """The vocabulary that the model was trained with."""
        return CharTokenizer(self.characters)

    def build_model(self) -> GPT:
        """Return the model, in evaluation mode, on the CPU."""
        with torch.random.fork_rng():
            model = GPT(self.model)
        model.load_state_dict(self.weights)
        return model.eval()


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; whatever happens, `path` holds the old one or the new one, whole."""
    tensors = {f"model.{name}": t for name, t in checkpoint.weights.items()}
    tensors |= {f"optimizer.{name}": t for name, t in checkpoint.optimizer.items()}
    # Clones, because a tied head and its embedding are one tensor and a file wants two.
    tensors = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    content = json.dumps(
        {
            "model": asdict(checkpoint.model),
            "characters": checkpoint.characters,
            "train": asdict(checkpoint.train),
            "progress": asdict(checkpoint.progress),
            "corpus": {"name": checkpoint.corpus_name, "sha256": checkpoint.corpus_sha256},
            "versions": {"torch": torch.__version__, "python": platform.python_version()},
        }
    )
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "content": content,
        "sha256": _digest(content, tensors),
    }
    with atomic_write(path) as file:
        file.write(safetensors.torch.save(tensors, metadata))


def load(path: Path) -> Checkpoint:
    """Read a checkpoint. Raises MissingFile or UserError for anything that is not a sound one."""
    path = Path(path)
    last = path.parent / "last.safetensors"
    if not path.exists() and last.exists():
        raise MissingFile(f"the checkpoint {path} does not exist (yet); but there is {last}")
    metadata = _read_metadata(existing_file(path, "the checkpoint"))
    try:
        tensors = safetensors.torch.load(path.read_bytes())
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise _damaged(path, str(error)) from None
    if _digest(metadata["content"], tensors) != metadata.get("sha256"):
        raise _damaged(path, "its checksum does not fit its content")
    try:
        checkpoint = _from_content(json.loads(metadata["content"]), tensors)
        _check_weights(checkpoint)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(path, str(error)) from None
    return checkpoint


def _read_metadata(path: Path) -> dict[str, str]:
    """Return the metadata of a safetensors file of ours, having read nothing but its head."""
    size = path.stat().st_size
    if size == 0:
        raise UserError(f"the checkpoint {path} is empty; use another checkpoint")
    with open(path, "rb") as file:
        head = file.read(8)
        if file.read(1) != b"{":
            if head[:2] == b"PK" or head[:1] == b"\x80":
                raise UserError(
                    f"{path} is a pickle (.pt or .pkl): it can run code when opened, so it is "
                    "refused; sancho reads the .safetensors files that train.py writes"
                )
            raise UserError(f"{path} is not a safetensors file; use one that train.py wrote")
        file.seek(8)
        length = int.from_bytes(head, "little")
        if length > min(size - 8, HEADER_LIMIT):
            raise _damaged(path, f"it has {size} bytes, less than its head announces")
        try:
            header = json.loads(file.read(length))
            metadata = header.get("__metadata__") or {}
        except (ValueError, AttributeError, RecursionError):
            raise UserError(
                f"{path} is not a safetensors file; use one that train.py wrote"
            ) from None
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise UserError(f"{path} is not a checkpoint of sancho-mini; use one that train.py wrote")
    if metadata.get("version") != str(VERSION):
        raise UserError(
            f"{path} has format version {metadata.get('version')}, this program reads version "
            f"{VERSION}; use the sancho-mini that wrote it"
        )
    if not isinstance(metadata.get("content"), str):
        raise _damaged(path, "it has no configuration")
    return metadata


def _from_content(content: dict, tensors: dict[str, Tensor]) -> Checkpoint:
    def part(prefix: str) -> dict[str, Tensor]:
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
    # A number of layers from a hostile file must not make us build them.
    if config.n_layer > len(weights):
        raise ValueError(f"it has {len(weights)} tensors, too few for {config.n_layer} layers")
    with _WithoutContent():
        expected = GPT(config).state_dict()
    for name in sorted(expected.keys() | weights.keys()):
        if name not in weights or name not in expected:
            raise ValueError(f"tensor {name} is {'missing' if name in expected else 'unknown'}")
        _check_shape(name, weights[name], expected[name].shape)
        if not weights[name].isfinite().all():
            raise ValueError(f"tensor {name} holds numbers that are not finite")
    for name, tensor in checkpoint.optimizer.items():
        owner, _, key = name.rpartition(".")
        if owner not in expected:
            raise ValueError(f"tensor {name} belongs to no weight")
        shape = expected[owner].shape
        other = {"step": shape[:0], "sum": shape[:1]}  # one number for all, one for each row
        _check_shape(name, tensor, other.get(key, shape))


class _WithoutContent(TorchFunctionMode):
    """Inside the block layers get weights that have a shape and no content.

    As with torch.device("meta"), but without drawing and computing on that device, which would
    load torch.compile's machinery: more than a second of every start.
    """

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is torch.empty:
            return function(*args, **kwargs | {"device": "meta"})
        if getattr(function, "__module__", "") == "torch.nn.init":
            return kwargs["tensor"]
        return function(*args, **kwargs)


def _check_shape(name: str, tensor: Tensor, shape: torch.Size) -> None:
    if tensor.shape != shape or tensor.dtype != torch.float32:
        found = f"{tuple(tensor.shape)} of {tensor.dtype}"
        raise ValueError(f"tensor {name} has shape {found}, not {tuple(shape)} of torch.float32")


def _digest(content: str, tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(content.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def _damaged(path: Path, why: str) -> UserError:
    return UserError(f"the checkpoint {path} is damaged: {why}; use another checkpoint")
