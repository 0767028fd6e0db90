"""A checkpoint as one ONNX file, for onnxruntime and its like.

The graph maps `ids`, (B, T) int64, to `logits`, (B, T, V) float32, with 1 ≤ T ≤ block_size; it has
no cache. The file's metadata hold JSON: `characters`, the vocabulary as one string, and `config`,
the shape of the model. README.md shows ten lines that write with it.
"""

import importlib.util
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from sancho import checkpoint
from sancho.checkpoint import Checkpoint
from sancho.config import ToOnnxOptions
from sancho.errors import UserError
from sancho.files import atomic_write, check_new
from sancho.layout import count_parameters

LARGEST = 500_000_000  # parameters: such a file ends at 2 GB


def to_onnx(options: ToOnnxOptions) -> list[str]:
    """Do what the command to-onnx does; return what there is to tell the user.

    Raises UserError where a library is missing, the model is too large or the file can't be made.
    """
    if not all(map(importlib.util.find_spec, ("onnx", "onnxscript"))):
        raise UserError('to-onnx needs onnx and onnxscript; install them: pip install ".[convert]"')
    saved = checkpoint.load_or_pretrained(options.checkpoint)
    check_new(options.output)
    if count_parameters(saved.model) > LARGEST:
        raise UserError("the model is too large: an ONNX file ends at 2 GB")
    content = onnx_file(saved)
    with atomic_write(options.output) as file:
        file.write(content)
    return [
        f"{options.output}: {len(content) / 1e6:.2f} MB; ids (B, T) → logits (B, T, "
        f"{saved.model.vocab_size}), T up to {saved.model.block_size}"
    ]


def onnx_file(saved: Checkpoint) -> bytes:
    """Return what the file holds."""
    import torch  # not above: whoever makes a page needs no PyTorch

    model = saved.build_model()
    if saved.model.position == "rope":  # one table of turns in the file, not one for each block
        for block in model.blocks:
            block.attention.turns = model.blocks[0].attention.turns
    example = torch.zeros(2, 2, dtype=torch.int64)  # a size of 1 would become a constant
    with _without_chatter():
        program = torch.onnx.export(
            model,
            (example,),
            input_names=["ids"],
            output_names=["logits"],
            dynamic_shapes={"ids": {0: "B", 1: "T"}},
            dynamo=True,
            verbose=False,
        )
    program.model.metadata_props["characters"] = json.dumps(saved.characters)
    program.model.metadata_props["config"] = json.dumps(asdict(saved.model))
    return program.model_proto.SerializeToString()


@contextmanager
def _without_chatter() -> Iterator[None]:
    """Keep the exporter's notes on its own parts from whoever exports."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
