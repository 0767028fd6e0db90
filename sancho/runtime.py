"""What a run computes on: device, number type, random streams."""

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import torch

from sancho.config import RuntimeConfig
from sancho.errors import UserError


class Stream(IntEnum):
    """Random streams that never touch each other."""

    INITIALISATION = 0
    BATCHES = 1
    DROPOUT = 2
    SAMPLING = 3


@dataclass(frozen=True)
class Runtime:
    """A device and the type of its matrix products."""

    device: torch.device
    dtype: torch.dtype

    def __str__(self) -> str:
        kind = str(self.dtype).removeprefix("torch.")
        return f"{kind} on {self.device.type}"

    def autocast(self) -> AbstractContextManager:
        """Return the context in which the model computes."""
        if self.dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)


def choose_device(name: str = "auto") -> torch.device:
    """Return the device of that name; "auto" is CUDA, else MPS, else the CPU.

    Raises UserError where this machine, or this build of torch, has no such device.
    """
    available = {
        "cuda": torch.cuda.is_available,
        "mps": torch.backends.mps.is_available,
        "cpu": lambda: True,
    }
    if name == "auto":
        name = next(device for device, is_there in available.items() if is_there())
    elif not available[name]():
        raise UserError(
            f"--device {name} was asked for, but torch {torch.__version__} finds none on this "
            "machine; leave --device out, or use --device cpu"
        )
    return torch.device(name)


def make_runtime(config: RuntimeConfig) -> Runtime:
    """Choose device and type as `config` asks. Raises UserError for what is not there."""
    device = choose_device(config.device)
    has_bfloat16 = device.type == "cuda" and torch.cuda.is_bf16_supported(False)
    if config.dtype == "bfloat16" and device.type == "mps":
        raise UserError("--dtype bfloat16 does not work on mps; use --dtype float32")
    if config.dtype == "auto":
        dtype = torch.bfloat16 if has_bfloat16 else torch.float32
    else:
        dtype = getattr(torch, config.dtype)
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    return Runtime(device, dtype)


def compiled(model: torch.nn.Module, wanted: bool) -> torch.nn.Module:
    """Return torch.compile(model) if `wanted` and if it works here; else the model itself."""
    if not wanted:
        return model
    fast = torch.compile(model)
    device = next(model.parameters()).device
    try:
        fast(torch.zeros(1, 1, dtype=torch.long, device=device))
    except Exception as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        warnings.warn(f"torch.compile does not work here, going on without: {reason}", stacklevel=2)
        return model
    return fast


def seed_of(seed: int, stream: Stream, *index: int) -> int:
    """Return a 63-bit seed for one place of one stream: a hash of all that it is given.

    What is drawn at a step depends on nothing that was drawn before, so a run that is resumed,
    evaluated more often or sampled from on the way draws the same.
    """
    return int(
        np.random.SeedSequence(seed, spawn_key=(stream, *index)).generate_state(1, np.uint64)[0]
        >> 1
    )


def generator(seed: int, stream: Stream, *index: int) -> np.random.Generator:
    """Return a NumPy generator for one place of one stream."""
    return np.random.Generator(
        np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(stream, *index)))
    )


@contextmanager
def torch_seed(seed: int, stream: Stream, *index: int) -> Iterator[None]:
    """Inside the block torch draws from one place of one stream; after it, as before."""
    with torch.random.fork_rng():
        torch.manual_seed(seed_of(seed, stream, *index))
        yield
