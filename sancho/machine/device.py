"""Devices and types: CPU or GPU, float32 or bfloat16."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache

import torch

from sancho.config import DeviceConfig, DeviceName, DType
from sancho.errors import UserError, note
from sancho.machine.seeds import Purpose, seed_of


@dataclass(frozen=True)
class Device:
    """A device, and the type of the matrix products on it."""

    torch_device: torch.device
    dtype: torch.dtype
    asked: DeviceName = "auto"  # --device as given: a run that goes on elsewhere chooses again

    def __str__(self) -> str:
        return f"{self.dtype_name} on {self.torch_device.type}"

    @property
    def dtype_name(self) -> DType:
        """The type as --dtype calls it."""
        return "float32" if self.dtype == torch.float32 else "bfloat16"

    @property
    def config(self) -> DeviceConfig:
        """The options with which a run goes on: the number type stays, since results depend on
        it."""
        return DeviceConfig(device=self.asked, dtype=self.dtype_name)

    @property
    def on_cpu(self) -> bool:
        """Whether it is a CPU."""
        return self.torch_device.type == "cpu"

    @property
    def suits_base(self) -> bool:
        """Whether it is a CUDA GPU with bfloat16; on another device `base` would take hours."""
        return self.torch_device.type == "cuda" and has_bfloat16("cuda")

    def autocast(self, *, training: bool = False) -> AbstractContextManager:
        """Return the context in which the model computes; on a CPU only training is in bfloat16.

        It holds for the thread that enters it, and for no other.
        """
        if self.dtype == torch.float32 or (self.on_cpu and not training):
            return nullcontext()
        return torch.autocast(self.torch_device.type, dtype=self.dtype)


def choose_device(config: DeviceConfig) -> Device:
    """Return the device and type that `config` asks for; "auto" is CUDA, or without it the CPU.

    Raises UserError for a device that this machine, or this build of torch, does not have.
    """
    name: str = config.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() and not _refusal("cuda") else "cpu"
    elif name != "cpu":
        backend = torch.cuda if name == "cuda" else torch.backends.mps
        why = _refusal(name) if backend.is_available() else "finds none on this machine"
        if why:
            advice = "use --device cpu, or --device auto"
            raise UserError(f"--device {name}: torch {torch.__version__} {why}; {advice}")
    if name == "mps" and config.dtype == "bfloat16":
        raise UserError("--dtype bfloat16 does not work on mps; use --dtype float32")
    kind = config.dtype
    if kind == "auto":
        kind = "bfloat16" if has_bfloat16(name) else "float32"
    return Device(torch.device(name), getattr(torch, kind), config.device)


def open_device(config: DeviceConfig) -> Device:
    """Return the device of `choose_device`, and set the float32 precision of GPU products.

    The precision holds for the whole process.
    """
    device = choose_device(config)
    if device.torch_device.type == "cuda":  # "high" is TF32, as precise as products in bfloat16
        torch.set_float32_matmul_precision("highest" if config.dtype == "float32" else "high")
    return device


@cache
def _refusal(device: str) -> str:
    """Return "" if torch can compute on a GPU that is there, or what it can't do."""
    try:
        torch.ones(1, device=device).add(1).item()
        return ""
    except (RuntimeError, AssertionError) as error:
        note(f"{device} can't be used: {str(error).splitlines()[0]}")
        return "can't compute on it"


def has_bfloat16(device: str) -> bool:
    """Return whether a device of that type has instructions for bfloat16."""
    if device == "cpu":
        features: dict = getattr(torch.cpu, "get_capabilities", dict)()  # older torch can't say
        return any(features.get(name) for name in ("avx512_bf16", "amx_bf16"))
    return device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


@contextmanager
def torch_seed(device: torch.device, seed: int, purpose: Purpose, *index: int) -> Iterator[None]:
    """Inside the block, torch draws the random numbers of one purpose and place."""
    # Without `devices`, fork_rng would start CUDA for a run on the CPU.
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        number = seed_of(seed, purpose, *index)
        torch.default_generator.manual_seed(number)
        if device.type != "cpu":
            getattr(torch, device.type).manual_seed(number)
        yield
