"""Export to an ONNX file, for onnxruntime and similar programs, and a JSON file beside it.

The graph maps `ids`, (B, T) int64, to `logits`, (B, T, V) float32, with 1 ≤ T ≤ block_size; it has
no cache. The file's metadata hold JSON: `characters`, the vocabulary as one string, and `config`,
the shape of the model. docs/exports.md shows ten lines that write with it. The JSON file holds the
same, because onnxruntime shows a program in JavaScript no metadata. There `characters` is a list,
because a string of JavaScript counts 𝕏 as two characters.
"""

import importlib.util
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sancho import checkpoint
from sancho.checkpoint import Checkpoint
from sancho.config import CheckpointOption
from sancho.convert.output import check_new
from sancho.errors import UserError
from sancho.machine.files import atomic_write
from sancho.machine.packages import lack
from sancho.shared.weights import count_parameters

LARGEST = 500_000_000  # parameters, of 4 bytes each: an ONNX file has 2 GB at most


@dataclass(frozen=True, kw_only=True)
class ToOnnxOptions(CheckpointOption):
    """Turn a checkpoint into an ONNX file, for onnxruntime and similar programs."""

    output: Path = Path("sancho.onnx")
    """The file to make. A file of the same name that ends with .json gets the characters and the
    shape of the model. Neither may exist yet."""


def to_onnx(options: ToOnnxOptions) -> list[str]:
    """Write both files; return the lines to tell the user.

    Raises UserError if a library is missing, the model is too large or a file can't be made.
    """
    # A missing PyTorch is reported first: without it the other two packages are of no use.
    checkpoint.require_torch()
    missing = [name for name in ("onnx", "onnxscript") if not importlib.util.find_spec(name)]
    if missing:
        raise UserError(f"to-onnx: {lack(' '.join(missing))}")
    saved = checkpoint.load(checkpoint.find_checkpoint(options.checkpoint))
    facts = new_files(options.output)
    if count_parameters(saved.model_config) > LARGEST:
        raise UserError(
            "the model is too large: an ONNX file can have 2 GB at most; choose a smaller model"
        )
    content = onnx_file(saved)
    described = {"characters": list(saved.characters), "config": asdict(saved.model_config)}
    # Both are written before either has its name, so that a full disk leaves neither.
    with atomic_write(facts) as small, atomic_write(options.output) as large:
        large.write(content)
        small.write(json.dumps(described).encode())
    return [
        f"{options.output}: {len(content) / 1e6:.2f} MB; ids (B, T) → logits (B, T, "
        f"{saved.model_config.vocab_size}), T up to {saved.model_config.block_size}",
        f"{facts}: the characters and the shape of that model, as in its metadata",
    ]


def new_files(output: Path) -> Path:
    """Return the path of the JSON file. Raises UserError unless both files would be new ones."""
    check_new(output)
    facts = output.with_suffix(".json")
    if output.suffix.lower() == ".json":
        raise UserError(f"--output {output} is the name of the JSON file; choose one in .onnx")
    if facts.exists() or facts.is_symlink():
        raise UserError(
            f"--output {output}: {facts} beside it exists already, and would hold the characters; "
            "choose another name"
        )
    return facts


def onnx_file(saved: Checkpoint) -> bytes:
    """Return the content of the file."""
    import torch  # not above: the export to a page needs no PyTorch

    from sancho.model import MultiHeadAttention

    config = saved.model_config
    model = saved.build_model()
    if config.position == "rope":  # one rotary table in the file, not one for each block
        layers = [m for m in model.modules() if isinstance(m, MultiHeadAttention)]
        for attention in layers:
            attention.rotations = layers[0].rotations
    example = torch.zeros(2, 2, dtype=torch.int64)  # a size of 1 would become a constant
    with _without_chatter():
        program = torch.onnx.export(
            model,
            (example,),
            input_names=["ids"],
            output_names=["logits"],
            dynamic_shapes={"ids": {0: "B", 1: "T"}},
            dynamo=True,
            custom_translation_table={torch.ops.aten.searchsorted.Tensor: _searchsorted},
            verbose=False,
        )
    assert program is not None  # it is for every export with dynamo
    program.model.metadata_props["characters"] = json.dumps(saved.characters)
    program.model.metadata_props["config"] = json.dumps(asdict(config))
    return program.model_proto.SerializeToString()


def _searchsorted(ascending: Any, numbers: Any, **options: object) -> Any:
    """Return how many of the ascending numbers, (n,), are less than each of `numbers`, (…).

    The last ascending number is not less than any of `numbers`. ONNX has no such operator; this
    is a binary search that decides one bit of the result after another, the highest first.
    """
    from onnxscript import opset18  # not above: it may not be installed

    op: Any = opset18  # its type annotations are too strict
    n = ascending.shape[0]
    found = op.Constant(value_int=0)
    for bit in reversed(range(n.bit_length())):
        more = op.Add(found, op.Constant(value_int=1 << bit))
        # Past the end, the last number is compared: it is never less.
        newest = op.Min(op.Sub(more, op.Constant(value_int=1)), op.Constant(value_int=n - 1))
        found = op.Where(op.Less(op.Gather(ascending, newest), numbers), more, found)
    return found


@contextmanager
def _without_chatter() -> Iterator[None]:
    """Silence the exporter's log and warnings, which are about its own parts."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
