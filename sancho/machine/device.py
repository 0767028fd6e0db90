"""Devices and types: CPU or GPU, float32 or bfloat16, compiled or not."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn

from sancho.config import DeviceConfig, DType
from sancho.errors import UserError
from sancho.machine.seeds import Purpose, seed_of


@dataclass(frozen=True)
class Device:
    """A device, and the type of the matrix products on it."""

    torch_device: torch.device
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{self.dtype_name} on {self.torch_device.type}"

    @property
    def dtype_name(self) -> DType:
        """The type as --dtype calls it."""
        return "float32" if self.dtype == torch.float32 else "bfloat16"

    @property
    def on_cpu(self) -> bool:
        """Whether it is a CPU."""
        return self.torch_device.type == "cpu"

    def autocast(self, *, training: bool = False) -> AbstractContextManager:
        """Return the context in which the model computes; on a CPU only training is in bfloat16.

        It holds for the thread that enters it, and for no other.
        """
        if self.dtype == torch.float32 or (self.on_cpu and not training):
            return nullcontext()
        return torch.autocast(self.torch_device.type, dtype=self.dtype)


def choose_device(config: DeviceConfig) -> Device:
    """Return the device and type that `config` asks for; "auto" is CUDA where it is, else the CPU.

    Raises UserError for what this machine, or this build of torch, does not have.
    """
    has = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    name: str = config.device
    if name == "auto":
        name = "cuda" if has["cuda"] else "cpu"
    if not has[name]:
        problem = f"torch {torch.__version__} finds none on this machine"
        raise UserError(f"--device {name}: {problem}; use --device cpu, or --device auto")
    if name == "mps" and config.dtype == "bfloat16":
        raise UserError("--dtype bfloat16 does not work on mps; use --dtype float32")
    kind = config.dtype
    if kind == "auto":
        kind = "bfloat16" if has_bfloat16(name) else "float32"
    if name == "cuda":  # "high" is TF32, which has the precision of bfloat16's products
        torch.set_float32_matmul_precision("highest" if config.dtype == "float32" else "high")
    return Device(torch.device(name), getattr(torch, kind))


def has_bfloat16(device: str) -> bool:
    """Return whether a device of that type has instructions for bfloat16."""
    if device == "cpu":
        features: dict = getattr(torch.cpu, "get_capabilities", dict)()  # older torch can't say
        return any(features.get(name) for name in ("avx512_bf16", "amx_bf16"))
    return device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


def compiled(model: nn.Module) -> nn.Module:
    """Return torch.compile(model). A module whose class says `compilable = False` stays eager."""
    for module in model.modules():
        if not getattr(module, "compilable", True):
            module.forward = torch.compiler.disable(module.forward)
    return cast(nn.Module, torch.compile(model))


@contextmanager
def explaining_compiler() -> Iterator[None]:
    """Inside the block, what torch.compile fails with becomes a UserError."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            raise
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"--compile does not work here ({reason}); leave it out") from None


@contextmanager
def torch_seed(device: torch.device, seed: int, purpose: Purpose, *index: int) -> Iterator[None]:
    """Inside the block torch draws what belongs to one purpose and place; after it, as before."""
    on_cuda = device.type == "cuda"
    # Without `devices`, fork_rng would start CUDA for a run on the CPU.
    with torch.random.fork_rng(devices=[device] if on_cuda else []):
        number = seed_of(seed, purpose, *index)
        torch.default_generator.manual_seed(number)
        if on_cuda:
            torch.cuda.manual_seed(number)
        elif device.type == "mps":
            torch.mps.manual_seed(number)
        yield
