"""Import of nanoGPT's character models (github.com/karpathy/nanoGPT).

nanoGPT keeps two pickles: ckpt.pt, which train.py writes, and meta.pkl, in which prepare.py keeps
the characters. A pickle may ask Python to call any function. None is called here: PyTorch reads
ckpt.pt as weights only, meta.pkl is read by a class that finds no functions, and a few harmless
names are replaced by functions of this module. So that a small file can't take hours or all memory,
the size of its content is counted before it is read.

Until 14 June 2023 nanoGPT computed GELU by its tanh approximation, since then exactly. Here it is
exact, and the command says whether the checkpoint shows that it was trained with the approximation.
"""

import io
import math
import pickle
import pickletools
import re
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from sancho import checkpoint
from sancho.checkpoint import Checkpoint, Progress
from sancho.config import Checked, ModelConfig, TrainConfig, from_dict
from sancho.convert.output import check_new
from sancho.errors import UserError
from sancho.files import existing_file
from sancho.weights import count_parameters, weight_shapes

if TYPE_CHECKING:
    import torch

GPT2_VOCABULARIES = (50257, 50304)
"""The number of GPT-2's tokens, and the same rounded up to a multiple of 64."""
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
"""Our names of the parts, and those in GPT-2 and nanoGPT."""


@dataclass(frozen=True, kw_only=True)
class FromNanogptOptions(Checked):
    """Turn a character model that nanoGPT trained into a checkpoint of sancho-mini."""

    checkpoint: Path = Path("ckpt.pt")
    """The ckpt.pt that nanoGPT's train.py wrote in its out_dir."""
    meta: Path | None = None
    """The meta.pkl that nanoGPT's prepare.py wrote beside train.bin; it holds the characters."""
    output: Path = Path("nanogpt.safetensors")
    """The checkpoint to make; it must not exist yet."""


def from_nanogpt(options: FromNanogptOptions) -> list[str]:
    """Write the checkpoint; return the lines to tell the user.

    Raises UserError for a file that is not of nanoGPT's making, damaged or hostile.
    """
    check_new(options.output)
    saved, notes = load_nanogpt(options.checkpoint, options.meta)
    checkpoint.save(options.output, saved)
    loss = saved.progress.val_loss
    known = f", validation loss {loss:.4f}" if loss is not None else ""
    return [
        f"{options.output}: {count_parameters(saved.model_config):,} parameters, "
        f"{saved.model_config.vocab_size} characters, {saved.progress.step:,} steps{known}",
        *notes,
    ]


def load_nanogpt(path: str | Path, meta: str | Path | None) -> tuple[Checkpoint, list[str]]:
    """Return nanoGPT's ckpt.pt and meta.pkl as a checkpoint of ours, and lines to tell the user.

    Raises UserError for a file that is not of nanoGPT's making, damaged or hostile.
    """
    checkpoint.require_torch()
    import torch  # not above: the export to a page needs no PyTorch

    path = existing_file(Path(path), "nanoGPT's checkpoint")
    with _explained(path, "not a checkpoint of nanoGPT, or damaged", "its ckpt.pt"):
        _check_checkpoint(path)
        with torch.serialization.safe_globals([(call, name) for name, call in HARMLESS.items()]):
            content = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(content, dict):
            raise ValueError(f"it holds a {type(content).__name__}")
        if "model_args" not in content and "transformer.wte.weight" in content:  # as minGPT's
            raise ValueError("it is a bare state_dict, weights without the shape of their model")
        arguments = {"bias": True, "dropout": 0.0} | content["model_args"]  # its own defaults
        for name, value in arguments.items():
            if not isinstance(value, int | float):
                raise ValueError(f"{name} is a {type(value).__name__}")
        tensors = _arrays(content["model"], path.stat().st_size)
        rows = len(tensors["transformer.wte.weight"])
        characters = _characters_of(path, max(rows, arguments["vocab_size"]), meta)
        arguments["vocab_size"] = len(characters)
        for name in ("transformer.wte.weight", "lm_head.weight"):
            tensors[name] = tensors[name][: len(characters)]
        model = _model_config(arguments, tensors)
        config = content.get("config") or {}
        name = config.get("dataset")
        train = _train_config(config)
        is_known = train.batch_size == config.get("batch_size")
        per_step = train.characters_per_step(model) if is_known else 0
        saved = Checkpoint(
            model_config=model,
            characters=characters,
            train_config=train,
            progress=_progress(content, per_step),
            corpus_name=name if isinstance(name, str) else "",
            corpus_sha256="",
            weights=_weights(model, tensors),
        )
        notes = [_note_on_gelu(content)]
    if rows > len(characters):
        notes.append(
            f"its embedding has {rows} rows for {len(characters)} characters: the last ones, which "
            "fill it up to a multiple of 64, are left out"
        )
    return saved, notes


def _characters_of(path: Path, vocab_size: int, meta: str | Path | None) -> str:
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
    characters = _read_characters(Path(meta))
    filled_up = -(-len(characters) // 64) * 64  # as copies of nanoGPT do, for speed
    if vocab_size not in (len(characters), filled_up):
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
    try:
        return from_dict(ModelConfig, values)
    except UserError as error:  # its message names an option, but nobody gave one
        raise ValueError(str(error).removeprefix("--")) from None


def _train_config(config: dict) -> TrainConfig:
    """Return the training options whose names and meanings are the same in nanoGPT as here.

    Values that are not allowed here are left out, such as a seed of −1 or an eval_interval of 0.
    """
    train = TrainConfig(optimizer="adamw", look_ahead=0)
    for name in config.keys() & vars(train).keys() - {"optimizer", "look_ahead"}:
        with suppress(TypeError, ValueError, OverflowError):
            value = type(getattr(train, name))(config[name])  # 5000.0 steps are 5000
            if value == config[name]:
                train = replace(train, **{name: value})
    return train


def _progress(content: dict, characters_per_step: int) -> Progress:
    step = int(content.get("iter_num") or 0)
    tokens = step * characters_per_step
    best = float(content.get("best_val_loss") or math.nan)  # of a tensor
    loss = best if math.isfinite(best) else None  # it may never have been evaluated
    return Progress(step=step, tokens=tokens, val_loss=loss, best_val_loss=loss)


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
    """Return a line that says which GELU the model was trained with, and which one is used here.

    It was the approximation for certain if `bias` was no argument yet (until 27 January 2023),
    or if AdamW did not decay the embeddings, but four matrices in each block (until 6 May).
    """
    arguments = content["model_args"]
    try:
        decayed = len(content["optimizer"]["param_groups"][0]["params"])
    except (KeyError, IndexError, TypeError):  # a copy may keep another one, or none
        decayed = 0
    if "bias" not in arguments or decayed == 4 * arguments["n_layer"]:
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


class _DType:
    """Replaces numpy.dtype for the type of a NumPy number in a pickle."""

    def __init__(self, name: str, *options: object) -> None:
        self.name = name

    def __setstate__(self, state: tuple) -> None:
        self.order = state[1]  # of its bytes

    def number(self, data: bytes) -> object:
        """Return the number as a number of Python."""
        return np.frombuffer(data, self.order + self.name).item()


def _unused(*parts: object) -> str:
    """Replace objects that are not needed, such as a set of the characters or a path."""
    return ""


HARMLESS: dict[str, Callable] = {
    "collections.OrderedDict": OrderedDict,
    "builtins.set": _unused,
    "__builtin__.set": _unused,
    "_codecs.encode": str.encode,  # of which old pickles make bytes
    "numpy.dtype": _DType,
    "numpy.core.multiarray.scalar": _DType.number,
    "numpy._core.multiarray.scalar": _DType.number,
    "pathlib.PosixPath": _unused,
    "pathlib.WindowsPath": _unused,
    "pathlib._local.PosixPath": _unused,
    "pathlib._local.WindowsPath": _unused,
}
"""The functions that are called if a pickle asks for these names."""
MOST = 5 * 10**7
"""The most objects and characters that a pickle may make; 65,536 characters need a tenth of it."""
MAGIC = 0x1950A86A20F9469CFC6C  # with which files of an old PyTorch begin
# Instructions that nanoGPT's pickles never have, and calls of PyTorch that could fill the memory.
STRANGE = {"DUP", "POP", "POP_MARK", "FROZENSET"}
FILLS_MEMORY = re.compile(r".*( bytearray|Tensor|TypedStorage|_rebuild_(?!tensor|parameter)\w+)")


class _Sizes:
    """Computes how large the content of a pickle would be, without making it.

    If a tuple holds another tuple twice, and so on forty levels deep, the pickle is small, but
    hashing the tuple takes 2^40 steps; a text that is joined to itself forty times fills the
    memory. Each object is a list of one number: the cost of copying or hashing it.
    """

    def __init__(self) -> None:
        self.stack: list[list[int]] = []
        self.marks: list[int] = []
        self.memo: dict[int, list[int]] = {}
        self.sum = 0

    def step(self, code: pickletools.OpcodeInfo, argument: object) -> None:
        """Follow one instruction. Raises ValueError if all objects together are too large."""
        name = code.name
        stack = self.stack
        if name == "MARK":
            self.marks.append(len(stack))
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif name.endswith("PUT"):
            self.memo[int(str(argument))] = stack[-1]
        elif name.endswith("GET"):
            stack.append(self.memo[int(str(argument))])
            self.sum += stack[-1][0]
        else:
            self.make(code, argument)
        if self.sum > MOST:
            raise ValueError("its pickle would grow too large when it is read")

    def make(self, code: pickletools.OpcodeInfo, argument: object) -> None:
        """Take objects from the stack, and put the result of an instruction there."""
        before = code.stack_before
        start = len(self.stack) - len(before)
        if pickletools.markobject in before:
            start = self.marks.pop() - before.index(pickletools.markobject)
        taken = self.stack[start:]
        size = sum(each[0] for each in taken)
        if code.name in ("REDUCE", "NEWOBJ", "NEWOBJ_EX", "OBJ") and taken[0][0]:
            raise ValueError("its pickle calls something that is not a function")
        if code.name in ("APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "BUILD"):
            del self.stack[start + 1 :]
            self.stack[start][0] = size
            return
        length = len(argument) if isinstance(argument, str | bytes) else 0
        # A call at most doubles the size of its arguments.
        made = 0 if code.name.endswith("GLOBAL") else 1 + length + 2 * size
        self.sum += made
        self.stack[start:] = [[made] for _ in code.stack_after]


def _check_pickle(file: IO[bytes]) -> None:
    """Raise an error if reading a pickle would take far more than its length, or fill the
    memory."""
    sizes = _Sizes()
    for code, argument, _ in pickletools.genops(file):
        if code.name == "GLOBAL" and FILLS_MEMORY.fullmatch(str(argument)):
            raise pickle.UnpicklingError(f"GLOBAL {str(argument).replace(' ', '.')}")
        # Python's numbers may be as long as a file, and different ones have the same hash.
        is_long = isinstance(argument, int) and argument.bit_length() > 64 and argument != MAGIC
        # Python's reader reserves memory for its memo up to the highest index.
        is_far = code.name.endswith("PUT") and int(str(argument)) > MOST // 10
        if code.name in STRANGE or is_long or is_far:
            raise ValueError(
                f"its pickle has the instruction {code.name}, which nanoGPT never writes"
            )
        sizes.step(code, argument)


def _check_checkpoint(path: Path) -> None:
    """Raise an error if opening a file of PyTorch would take far more memory than its size."""
    with open(path, "rb") as file:
        if file.read(2) != b"PK":
            file.seek(0)
            for _ in range(5):  # an old PyTorch wrote this many pickles before the weights
                _check_pickle(file)
            return
    with zipfile.ZipFile(path) as parts:
        if sum(part.file_size for part in parts.infolist()) > path.stat().st_size:
            raise ValueError("it is compressed, which no file of PyTorch is")
        for part in parts.infolist():
            if part.filename.lower().endswith("data.pkl"):
                with parts.open(part) as file:
                    _check_pickle(file)


def _arrays(tensors: "dict[str, torch.Tensor]", size_of_file: int) -> dict[str, np.ndarray]:
    """Return the weights by nanoGPT's names, without the prefixes of wrappers.

    torch.compile and DistributedDataParallel add prefixes. An old nanoGPT also saved attn.bias of
    each block, which is left out. Raises ValueError if the tensors are larger than the file, which
    then repeats numbers.
    """
    own = {name: t for name, t in tensors.items() if not name.endswith(".attn.bias")}
    # The embedding may be saved twice, the second time as the head.
    if sum(t.numel() * t.element_size() for t in own.values()) > 2 * size_of_file:
        raise ValueError("its tensors are larger than the file")
    return {
        re.sub(r"^(module\.|_orig_mod\.)+", "", name): tensor.detach().float().contiguous().numpy()
        for name, tensor in own.items()
    }


class _PlainUnpickler(pickle.Unpickler):
    """Reads pickles of numbers, strings, lists, dictionaries and a few other harmless objects."""

    def find_class(self, module: str, name: str) -> Callable:
        """Return the function to call; for one that is not harmless raise an error like
        PyTorch's."""
        called = HARMLESS.get(f"{module}.{name}")
        if called is None:
            raise pickle.UnpicklingError(f"GLOBAL {module}.{name}")
        return lambda *parts: called(*parts)  # a new function, because a pickle may change it


def _read_characters(path: Path) -> str:
    """Return the characters of a meta.pkl, in the order of their ids."""
    data = existing_file(path, "nanoGPT's meta").read_bytes()
    with _explained(path, "not the meta.pkl of a character model", "what prepare.py wrote"):
        _check_pickle(io.BytesIO(data))
        itos = _PlainUnpickler(io.BytesIO(data)).load()["itos"]
        characters = [itos[i] for i in range(len(itos))]
        text = "".join(characters)
        text.encode()  # fails for half of a surrogate pair
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
                f"{path} is refused: opening it would call {asked[1]}, and no file of nanoGPT "
                "calls anything; do not open it with another program either"
            ) from None
        why = "it can't be read"  # PyTorch's own message advises opening it all the same
        if isinstance(error, KeyError):
            why = f"{error} is missing"
        elif isinstance(error, TypeError | AttributeError | ValueError):
            why = str(error)
        raise UserError(f"{path} is {what}: {why}; use {use}") from None
