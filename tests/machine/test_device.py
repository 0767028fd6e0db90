"""Which device and type is chosen, and from which generator PyTorch draws."""

from collections.abc import Callable, Iterator

import pytest
import torch
from runs import GPU, needs_gpu

from sancho.config import DeviceConfig
from sancho.errors import UserError
from sancho.machine import device as device_module
from sancho.machine.device import choose_device, open_device, torch_seed
from sancho.machine.seeds import Purpose

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def precision() -> Iterator[None]:
    """To choose CUDA decides how exact its products are; leave that as it was."""
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.fixture
def machine(monkeypatch) -> Callable:
    """Return a function after which torch finds these devices, whatever this machine has."""

    def has(*devices: str, bfloat16: bool = True, features: dict | None = None) -> None:
        def supported(including_emulation: bool = True) -> bool:
            return including_emulation or bfloat16

        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: features, raising=False)
        if features is None:
            monkeypatch.delattr(torch.cpu, "get_capabilities")
        monkeypatch.setattr("sancho.machine.device._refusal", lambda device: "")
        monkeypatch.setattr(torch.cuda, "is_available", lambda: "cuda" in devices)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "mps" in devices)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)

    return has


@pytest.mark.parametrize(
    ("devices", "expected"), [((), "cpu"), (("mps",), "cpu"), (("cuda", "mps"), "cuda")]
)
def test_auto_is_cuda_where_it_is_and_else_the_cpu(machine, devices, expected):
    """And mps only for who asks for it. A run that goes on asks again."""
    machine(*devices)
    device = choose_device(DeviceConfig())
    assert device.torch_device == torch.device(expected)
    assert device.config == DeviceConfig(device="auto", dtype=device.dtype_name)


@pytest.mark.parametrize(("name", "other"), [("cuda", "mps"), ("mps", "cuda")])
def test_a_device_can_be_asked_for_where_it_is_and_is_refused_elsewhere(machine, name, other):
    machine(name, other)
    assert choose_device(DeviceConfig(device=name)).torch_device == torch.device(name)
    machine(other)
    with pytest.raises(UserError) as caught:
        choose_device(DeviceConfig(device=name))
    for part in (f"--device {name}", torch.__version__, "--device cpu"):
        assert part in str(caught.value)


def test_a_gpu_that_this_torch_has_no_code_for(machine, monkeypatch, caplog):
    """torch finds it, and its first operation fails: the CPU trains, or one line says so."""
    refusal = device_module._refusal.__wrapped__
    machine("cuda")
    monkeypatch.setattr("sancho.machine.device._refusal", refusal)

    def fail(*size: int, device: str) -> None:
        raise RuntimeError(f"{device} error: no kernel image is available\nCompile with")

    monkeypatch.setattr(torch, "ones", fail)
    assert choose_device(DeviceConfig()).on_cpu
    assert caplog.messages == ["note: cuda can't be used: cuda error: no kernel image is available"]
    with pytest.raises(UserError, match=r"^--device cuda: torch .* can't compute on it; use --dev"):
        choose_device(DeviceConfig(device="cuda"))


@pytest.mark.parametrize(
    ("name", "bfloat16", "features", "expected"),
    [
        ("cpu", True, {"avx512_f": True, "avx512_bf16": False}, torch.float32),
        ("cpu", True, None, torch.float32),  # where torch is too old to say
        ("cpu", False, {"avx512_bf16": True}, torch.bfloat16),
        ("cpu", False, {"avx512_bf16": False, "amx_bf16": True}, torch.bfloat16),
        ("mps", True, {}, torch.float32),
        ("cuda", False, {"amx_bf16": True}, torch.float32),  # what a GPU only emulates is slower
        ("cuda", True, {}, torch.bfloat16),
    ],
)
def test_auto_is_bfloat16_where_the_device_has_it(machine, name, bfloat16, features, expected):
    machine("cuda", "mps", bfloat16=bfloat16, features=features)
    assert choose_device(DeviceConfig(device=name)).dtype == expected
    assert choose_device(DeviceConfig(device=name, dtype="float32")).dtype == torch.float32


def test_bfloat16_can_be_asked_for_but_not_on_mps(machine):
    machine("cuda", "mps", bfloat16=False)
    for name in ("cpu", "cuda"):
        found = choose_device(DeviceConfig(device=name, dtype="bfloat16"))
        assert (found.torch_device.type, found.dtype) == (name, torch.bfloat16)
    with pytest.raises(UserError, match="--dtype bfloat16 does not work on mps"):
        choose_device(DeviceConfig(device="mps", dtype="bfloat16"))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "auto"])
@pytest.mark.parametrize("before", ["highest", "high"])
def test_float32_on_a_gpu_is_float32_where_it_was_asked_for(machine, dtype, before):
    machine("cuda", bfloat16=False)
    torch.set_float32_matmul_precision(before)
    open_device(DeviceConfig(device="cpu", dtype=dtype))
    choose_device(DeviceConfig(dtype=dtype))
    assert torch.get_float32_matmul_precision() == before
    open_device(DeviceConfig(dtype=dtype))
    expected = "highest" if dtype == "float32" else "high"  # which is TF32
    assert torch.get_float32_matmul_precision() == expected


@pytest.mark.parametrize("device", [CPU, pytest.param(GPU.torch_device, marks=needs_gpu)], ids=str)
def test_a_place_has_its_own_numbers_and_after_it_torch_goes_on_as_before(device):
    def draw(count: int = 5) -> list[float]:
        return torch.rand(count, device=device).tolist()

    torch.manual_seed(5)
    expected = draw(4)
    torch.manual_seed(5)
    found = draw(2)
    numbers = []
    for seed, *place in ((7, 3, 1), (7, 3, 2), (7, 4, 1), (7, 3), (8, 3, 1), (7, 3, 1)):
        with torch_seed(device, seed, Purpose.DROPOUT, *place):
            numbers.append(draw())
    assert numbers[0] == numbers.pop()
    assert len(set(map(tuple, numbers))) == 5
    with pytest.raises(KeyboardInterrupt), torch_seed(device, 7, Purpose.INITIALISATION):
        draw()
        raise KeyboardInterrupt
    assert found + draw(2) == expected
