"""Export to one ONNX file, for onnxruntime and similar programs.

The graph maps `ids`, (B, T) int64, to `logits`, (B, T, V) float32, with 1 ≤ T ≤ block_size; it has
no cache. The file's metadata hold JSON: `characters`, the vocabulary as one string, and `config`,
the shape of the model. docs/exports.md shows ten lines that write with it.
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
from sancho.files import atomic_write
from sancho.weights import count_parameters

LARGEST = 500_000_000  # parameters, of 4 bytes each: an ONNX file has 2 GB at most


@dataclass(frozen=True, kw_only=True)
class ToOnnxOptions(CheckpointOption):
    """Turn a checkpoint into one ONNX file, for onnxruntime and similar programs."""

    output: Path = Path("sancho.onnx")
    """The file to make; it must not exist yet."""


def to_onnx(options: ToOnnxOptions) -> list[str]:
    """Write the file; return the lines to tell the user.

    Raises UserError if a library is missing, the model is too large or the file can't be made.
    """
    # A missing PyTorch is reported here, with the command for its CPU build: the extra named below
    # would install the one for GPUs.
    checkpoint.require_torch()
    if not all(map(importlib.util.find_spec, ("onnx", "onnxscript"))):
        raise UserError('to-onnx needs onnx and onnxscript; install them: pip install ".[convert]"')
    saved = checkpoint.load(checkpoint.find_checkpoint(options.checkpoint))
    check_new(options.output)
    if count_parameters(saved.model_config) > LARGEST:
        raise UserError(
            "the model is too large: an ONNX file can have 2 GB at most; choose a smaller model"
        )
    content = onnx_file(saved)
    with atomic_write(options.output) as file:
        file.write(content)
    return [
        f"{options.output}: {len(content) / 1e6:.2f} MB; ids (B, T) → logits (B, T, "
        f"{saved.model_config.vocab_size}), T up to {saved.model_config.block_size}"
    ]


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
