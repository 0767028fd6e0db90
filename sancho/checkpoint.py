"""Checkpoints: one safetensors file that needs no other.

Tensors are named "model.…", as in weights.py, and "optimizer.…"; all else is JSON in the file's
metadata. A file is checked before it is used, and nothing in it is ever executed.
"""

import hashlib
import io
import json
import math
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import safetensors.numpy

from sancho.config import DeviceConfig, ModelConfig, TrainConfig, from_dict
from sancho.errors import MissingFile, OtherFunction, UserError, note, shown
from sancho.implementation import implementation, numpy_model, torch_logits
from sancho.machine.files import atomic_write, existing_file
from sancho.machine.packages import problem
from sancho.numpy_model import NumpyGPT
from sancho.presets import PRESETS
from sancho.shared.ngrams import NO_KEY
from sancho.shared.proof import (
    from_base64,
    in_base64,
    proof_size,
    require_proof,
)
from sancho.shared.weights import NGRAM_KEYS, weight_shapes
from sancho.tokenizer import CharTokenizer

if TYPE_CHECKING:
    from sancho.model import GPT

Arrays = dict[str, np.ndarray]
FORMAT = "sancho-mini"
VERSION = "5"
PRETRAINED = Path(__file__).parent / "pretrained" / "sancho.safetensors"
BEST = "best.safetensors"
LAST = "last.safetensors"
LONGEST_NAME = 200  # characters of the name of a text
LONGEST_HEADER = 10**8  # bytes, the most that safetensors reads
# What reading a damaged file can raise (AttributeError for a type that NumPy does not have).
DAMAGE = (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError)


@dataclass
class Progress:
    """How far a run has come."""

    step: int = 0
    tokens: int = 0
    """Characters trained on."""
    seconds: float = 0.0
    """Time spent training, evaluations included."""
    is_evaluated: bool = False
    """Whether an evaluation was made after that step."""
    val_loss: float | None = None
    """Validation loss of the last evaluation, in nats per character."""
    best_val_loss: float | None = None
    evaluations_since_best: int = 0
    recent_losses: list[float] = field(default_factory=list)
    """Training losses of the steps since the last report."""

    def __post_init__(self) -> None:
        """Raise ValueError for numbers that no run can have."""
        counted = [self.step, self.tokens, self.seconds, self.evaluations_since_best]
        losses = [self.val_loss or 0, self.best_val_loss or 0, *self.recent_losses]
        if min(counted) < 0 or not all(map(math.isfinite, [*counted, *losses])):
            raise ValueError(
                f"step {self.step}, or a loss after it, is a number that no run can have"
            )


@dataclass(frozen=True)
class Origin:
    """Which run wrote a file, and from which text it learned."""

    run: str
    sha256: str
    lengths: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What a checkpoint file holds."""

    model_config: ModelConfig
    characters: str
    train_config: TrainConfig
    device_config: DeviceConfig = field(default_factory=DeviceConfig)
    progress: Progress
    corpus_name: str
    corpus_sha256: str
    """As `corpus.digest`."""
    corpus_lengths: tuple[int, ...] = ()
    """The numbers of characters of the text's files."""
    run: str = ""
    """The id of the run that saved it, which its other files carry as well; empty without a run."""
    weights: Arrays = field(repr=False)
    """By the names of `weight_shapes`."""
    optimizer: Arrays = field(default_factory=dict, repr=False)
    """By "weight.state"; empty if training can't go on from this file."""
    proof: np.ndarray | None = field(default=None, repr=False)
    """The proof of the trained model, from `proof_of`; None in a file without one."""

    @property
    def tokenizer(self) -> CharTokenizer:
        """The vocabulary that the model was trained with."""
        return CharTokenizer(self.characters)

    def build_model(self) -> "GPT":
        """Return the model as a PyTorch module, in evaluation mode, on the CPU.

        A note is given if model.py computes another function than the one that was trained.
        """
        require_torch()
        from sancho.model import GPT  # not above: writing on a CPU needs no PyTorch

        model = GPT.with_weights(self.model_config, self.weights).eval()
        if self.proof is not None and len(self.proof):
            try:
                require_proof(
                    self.proof, partial(torch_logits, model), self.model_config, "sancho/model.py"
                )
            except OtherFunction as why:
                note(f"{why}; PyTorch uses it all the same")
        return model

    def build_numpy(self) -> NumpyGPT:
        """Return the model for inference in NumPy.

        Raises OtherFunction if NumPy does not compute the model that was trained.
        """
        return numpy_model(self.model_config, self.weights, self.proof)

    def build_implementation(self) -> "NumpyGPT | GPT":
        """Return the model that writes on a CPU: NumPy's if that computes what was trained.

        Otherwise it is PyTorch's, with a note. Raises OtherFunction if PyTorch is not installed.
        """
        return implementation(self.model_config, self.weights, self.proof, self.build_model)


def save(path: str | Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; whatever happens, `path` holds either the old one or the new one.

    Raises UserError for a name or a character that can't be written to a file.
    """
    _require_text(checkpoint.characters, "the vocabulary")
    _require_text(checkpoint.corpus_name, "the name of the corpus")
    tensors = {f"model.{name}": array for name, array in checkpoint.weights.items()}
    tensors |= {f"optimizer.{name}": array for name, array in checkpoint.optimizer.items()}
    # safetensors writes an array as it lies in memory.
    tensors = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    versions = {"python": platform.python_version()}
    with suppress(PackageNotFoundError):  # it need not be there
        versions["torch"] = version("torch")
    proof = {} if checkpoint.proof is None else {"proof": in_base64(checkpoint.proof)}
    content = json.dumps(
        {
            "model": asdict(checkpoint.model_config),
            "characters": checkpoint.characters,
            "train": asdict(checkpoint.train_config),
            "device": asdict(checkpoint.device_config),
            "progress": asdict(checkpoint.progress),
            "corpus": {
                "name": checkpoint.corpus_name,
                "sha256": checkpoint.corpus_sha256,
                "lengths": checkpoint.corpus_lengths,
            },
            "run": checkpoint.run,
            "versions": versions,
        }
        | proof
    )
    metadata = {"format": FORMAT, "version": VERSION, "content": content}
    metadata["sha256"] = _digest(content, tensors)
    with _naming_short_memory(sum(array.nbytes for array in tensors.values())):
        raw = safetensors.numpy.save(tensors, metadata)
    with atomic_write(path) as file:
        file.write(raw)


def _read_proof(content: dict, config: ModelConfig) -> np.ndarray | None:
    if "proof" not in content:
        return None
    proof = from_base64(content["proof"])
    if len(proof) not in (0, proof_size(config)) or not np.isfinite(proof).all():
        raise ValueError("its proof does not fit its model")
    return proof


@contextmanager
def _naming_short_memory(size: int) -> Iterator[None]:
    """Raise MemoryError where safetensors would need `size` bytes that are not there.

    It is written in Rust, which then prints lines of its own before it panics.
    """
    np.empty(size, np.uint8)
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise MemoryError(str(error)) from None


def _require_text(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"{text[error.start]!r}, half a character"
        raise UserError(f"{what} has {half}, which can't be written; choose another") from None


def require_torch() -> None:
    """Raise UserError if PyTorch is installed, but can't be loaded or is too old.

    Call this before importing PyTorch on demand. Raises ModuleNotFoundError if it is missing.
    """
    if why := problem("torch"):
        raise UserError(why)


def find_checkpoint(name: str | Path | None) -> Path:
    """Return the path of the checkpoint that was asked for.

    A folder means the best checkpoint of its run, or if there is none the last one, with a note.
    None means the folder out, or if that has no run the pretrained model, with a note. The name
    "pretrained" means that model, too, unless a file or a run has that name.
    Raises MissingFile if there is no such checkpoint.
    """
    path = Path(name or "out")
    if name is None and not any((path / each).exists() for each in (BEST, LAST)):
        what = "the pretrained model that comes with the project; train your own with train.py"
        note(f"there is no run in {path}, so this is {what}")
        return PRETRAINED
    if path == Path("pretrained") and not (path.is_file() or (path / BEST).exists()):
        return PRETRAINED
    best = path / BEST if path.is_dir() else path
    last = best.with_name(LAST)
    if best.name == BEST and not best.exists() and last.exists():
        note(f"{best.parent} has no {BEST} yet, so this is {last}")
        return last
    if path.is_dir() and not best.exists():
        raise MissingFile(f"the folder {path} has no checkpoint; name another, or pretrained")
    return existing_file(best, "the checkpoint")


def pretrained() -> Checkpoint:
    """Read the pretrained model that comes with the project."""
    return load(PRETRAINED)


def load(path: str | Path) -> Checkpoint:
    """Read a checkpoint; weights in half precision become float32.

    Raises MissingFile, UserError for a file that is not an intact checkpoint, and OSError where the
    system refuses to read it.
    """
    path = existing_file(path, "the checkpoint")
    raw = path.read_bytes()  # safetensors' own errors don't say why the system refused a file
    _require_safetensors(path, raw)
    try:
        metadata = _header(io.BytesIO(raw)).get("__metadata__", {})
        if (metadata.get("format"), metadata.get("version")) == (FORMAT, VERSION):
            with _naming_short_memory(len(raw)):
                tensors = safetensors.numpy.load(raw)
            return _read(metadata, tensors)
    except UserError as error:  # an option, or a value of one, that is unknown here
        advice = "use the sancho-mini that wrote it"
        why = shown(error)
        raise UserError(f"this program can't open the checkpoint {path}: {why}; {advice}") from None
    except (safetensors.SafetensorError, *DAMAGE) as error:
        why = shown(f"{error} is missing" if isinstance(error, KeyError) else error)
        damage = f"the checkpoint {path} is damaged: {why}"
        raise UserError(f"{damage}; use another checkpoint") from None
    if metadata.get("format") != FORMAT:
        raise UserError(f"{path} is not a checkpoint of sancho-mini; use one of a run")
    versions = f"version {shown(metadata.get('version'))}, but this program reads version {VERSION}"
    raise UserError(f"{path} has {versions}; use the sancho-mini that wrote it")


def _header(file: BinaryIO) -> dict:
    """Return the header of a safetensors file: https://github.com/huggingface/safetensors."""
    size = int.from_bytes(file.read(8), "little")
    return json.loads(file.read(min(size, LONGEST_HEADER)))


def _require_safetensors(path: Path, raw: bytes) -> None:
    if raw[8:9] != b"{":  # a header's length stands before it, which may begin like a pickle
        what = "is not a safetensors file"
        if raw[:2] == b"PK" or raw[:1] == b"\x80":
            what = "is a pickle (.pt or .pkl): it can run code when opened, so it is refused"
        raise UserError(f"{path} {what if raw else 'is empty'}; use one of a run")


def _read(metadata: dict[str, str], tensors: Arrays) -> Checkpoint:
    if _digest(metadata["content"], tensors) != metadata.get("sha256"):
        raise ValueError("its checksum does not match its content")
    content = json.loads(metadata["content"])
    parts: dict[str, Arrays] = {"model": {}, "optimizer": {}}
    for name, tensor in tensors.items():
        part, _, own_name = name.partition(".")
        is_half = part == "model" and tensor.dtype == np.float16
        parts[part][own_name] = tensor.astype(np.float32) if is_half else tensor
    model_config = from_dict(ModelConfig, content["model"])
    train_config = from_dict(TrainConfig, content["train"])
    if train_config.preset not in PRESETS:
        raise ValueError(f"its preset is {train_config.preset!r}")
    proof = _read_proof(content, model_config)
    found = Checkpoint(
        model_config=model_config,
        characters=_text(content["characters"]),
        train_config=train_config,
        device_config=from_dict(DeviceConfig, content["device"]),
        progress=from_dict(Progress, content["progress"]),
        corpus_name=_name(content["corpus"]["name"]),
        corpus_sha256=_text(content["corpus"]["sha256"]),
        corpus_lengths=_lengths(content["corpus"]["lengths"]),
        run=_run_id(content["run"]),
        weights=parts["model"],
        optimizer=parts["optimizer"],
        proof=proof,
    )
    _check_weights(found)
    return found


def origin_of(path: Path) -> Origin | None:
    """Return the origin of a checkpoint, without its tensors; None for a file that is none.

    Raises OSError.
    """
    with suppress(*DAMAGE), open(path, "rb") as file:
        content = json.loads(_header(file)["__metadata__"]["content"])
        corpus = content["corpus"]
        return Origin(_run_id(content["run"]), _text(corpus["sha256"]), _lengths(corpus["lengths"]))
    return None


def _name(value: object) -> str:
    if not isinstance(value, str) or shown(value, LONGEST_NAME) != value:
        raise ValueError(f"the name of its text is {value!r}")
    return value


def _run_id(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"\w*", value):
        raise ValueError(f"the id of its run is {value!r}")  # names of files end with it
    return value


def _lengths(values: object) -> tuple[int, ...]:
    if not isinstance(values, list) or any(type(n) is not int or n < 0 for n in values):
        raise ValueError(f"the lengths of its text are {values!r}")
    return tuple(values)


def _text(value: object) -> str:
    return str(value).encode().decode()  # half of a surrogate pair can't be written


def _check_weights(checkpoint: Checkpoint) -> None:
    if checkpoint.tokenizer.vocab_size != checkpoint.model_config.vocab_size:
        raise ValueError("its vocabulary and its model have different numbers of characters")
    shapes = weight_shapes(checkpoint.model_config)
    for name in sorted(shapes.keys() | checkpoint.weights.keys()):
        weight = checkpoint.weights.get(name, np.empty(0))
        kind = "int32" if name == NGRAM_KEYS else "float32"
        if weight.shape != shapes.get(name) or weight.dtype != kind:
            raise ValueError(
                f"tensor {name} is {weight.dtype} {weight.shape}; there should be {kind} "
                f"{shapes.get(name, 'no such tensor')}"
            )
        if not np.isfinite(weight).all():
            raise ValueError(f"tensor {name} holds numbers that are not finite")
    keys = checkpoint.weights.get(NGRAM_KEYS, np.array([NO_KEY]))
    if keys[-1] != NO_KEY or (keys[1:] < keys[:-1]).any():
        raise ValueError(f"tensor {NGRAM_KEYS} does not ascend to {NO_KEY}")
    if checkpoint.optimizer:
        heads = [f"look_ahead.{j}" for j in range(checkpoint.train_config.look_ahead)]
        shapes |= dict.fromkeys(heads, shapes["head.weight"])
        for name in (*(f"{head}.weight" for head in heads), *checkpoint.optimizer):
            state = checkpoint.optimizer.get(name, np.empty(0))
            owner = shapes.get(name.rpartition(".")[0], ())
            # The state has one number for each weight, for each row, or for all of them.
            if state.shape not in (owner, owner[:1], ()) or state.dtype != "float32":
                raise ValueError(f"tensor {name} is missing, or is not the state of an optimizer")


def _digest(content: str, tensors: Arrays) -> str:
    digest = hashlib.sha256(content.encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"{name} torch.{array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
