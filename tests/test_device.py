"""Which device and type is chosen, what is compiled, and from which generator PyTorch draws."""

from collections.abc import Callable, Iterator

import pytest
import torch
from runs import GPU, needs_gpu

from sancho.config import DeviceConfig
from sancho.errors import UserError
from sancho.machine.device import choose_device, explaining_compiler, torch_seed
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

        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: features or {})
        monkeypatch.setattr(torch.cuda, "is_available", lambda: "cuda" in devices)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "mps" in devices)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)

    return has


# --- where ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("devices", "expected"), [((), "cpu"), (("mps",), "cpu"), (("cuda", "mps"), "cuda")]
)
def test_auto_is_cuda_where_it_is_and_else_the_cpu(machine, devices, expected):
    """And mps only for who asks for it."""
    machine(*devices)
    assert choose_device(DeviceConfig()).torch_device == torch.device(expected)


@pytest.mark.parametrize(("name", "other"), [("cuda", "mps"), ("mps", "cuda")])
def test_a_device_can_be_asked_for_where_it_is_and_is_refused_elsewhere(machine, name, other):
    machine(name, other)
    assert choose_device(DeviceConfig(device=name)).torch_device == torch.device(name)
    machine(other)
    with pytest.raises(UserError) as caught:
        choose_device(DeviceConfig(device=name))
    for part in (f"--device {name}", torch.__version__, "--device cpu"):
        assert part in str(caught.value)


# --- in which type --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "bfloat16", "features", "expected"),
    [
        ("cpu", True, {"avx512_f": True, "avx512_bf16": False}, torch.float32),
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


def test_auto_is_float32_where_torch_is_too_old_to_say(machine, monkeypatch):
    machine()
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert choose_device(DeviceConfig()).dtype == torch.float32


def test_bfloat16_can_be_asked_for_but_not_on_mps(machine):
    machine("cuda", "mps", bfloat16=False)
    for name in ("cpu", "cuda"):
        found = choose_device(DeviceConfig(device=name, dtype="bfloat16"))
        assert (found.torch_device.type, found.dtype) == (name, torch.bfloat16)
    with pytest.raises(UserError, match="--dtype bfloat16 does not work on mps"):
        choose_device(DeviceConfig(device="mps", dtype="bfloat16"))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "auto"])
@pytest.mark.parametrize("bfloat16", [True, False])
def test_float32_on_a_gpu_is_float32_where_it_was_asked_for(machine, dtype, bfloat16):
    machine("cuda", bfloat16=bfloat16)
    expected = "highest" if dtype == "float32" else "high"  # which is TF32
    for before in ("highest", "high"):
        torch.set_float32_matmul_precision(before)
        choose_device(DeviceConfig(device="cpu", dtype=dtype))
        assert torch.get_float32_matmul_precision() == before
        choose_device(DeviceConfig(dtype=dtype))
        assert torch.get_float32_matmul_precision() == expected


# --- compiled: test_training.py has what works ------------------------------------------------


def test_what_the_compiler_fails_with_is_one_line_and_no_other_error_is():
    of_compiler = type("Failed", (RuntimeError,), {"__module__": "torch._inductor.exc"})
    words = r"--compile does not work here \(no compiler was found\); leave it out$"
    with pytest.raises(UserError, match=words), explaining_compiler():
        raise of_compiler("no compiler\nwas found")
    for error in (KeyboardInterrupt, RuntimeError):
        with pytest.raises(error), explaining_compiler():
            raise error


# --- seeds ----------------------------------------------------------------------------------


def draw(device: torch.device, count: int) -> list[float]:
    return torch.rand(count, device=device).tolist()


def draw_at(device: torch.device, seed: int, *place: int) -> list[float]:
    with torch_seed(device, seed, Purpose.DROPOUT, *place):
        return draw(device, 5)


@pytest.mark.parametrize("device", [CPU, pytest.param(GPU.torch_device, marks=needs_gpu)], ids=str)
def test_a_place_has_its_own_numbers_and_after_it_torch_goes_on_as_before(device):
    torch.manual_seed(5)
    expected = draw(device, 4)
    torch.manual_seed(5)
    found = draw(device, 2)
    places = [(7, 3, 1), (7, 3, 2), (7, 4, 1), (7, 3), (8, 3, 1)]
    numbers = [draw_at(device, *place) for place in [*places, places[0]]]
    assert numbers[0] == numbers[-1]
    assert len(set(map(tuple, numbers))) == len(places)
    with pytest.raises(KeyboardInterrupt), torch_seed(device, 7, Purpose.INITIALISATION):
        draw(device, 9)
        raise KeyboardInterrupt
    assert found + draw(device, 2) == expected


def test_a_seed_on_the_cpu_does_not_start_cuda(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda where: pytest.fail("it was started"))
    draw_at(CPU, 7)
