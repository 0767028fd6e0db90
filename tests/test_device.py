"""Which device and type is chosen, what is compiled, and from which generator PyTorch draws."""

import warnings
from collections.abc import Callable

import pytest
import torch
from conftest import randomise
from torch import nn

from sancho.config import DeviceConfig
from sancho.errors import UserError
from sancho.machine.device import Device, choose_device, compiled, torch_seed
from sancho.machine.seeds import Purpose

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def precision() -> None:
    """To choose CUDA raises the speed of its products; leave that as it was."""
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.fixture
def machine(monkeypatch) -> Callable:
    """Return a function after which torch finds these devices, whatever this machine has."""

    def has(*devices: str, bfloat16: bool = True) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: "cuda" in devices)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "mps" in devices)
        supported = {True: True, False: bfloat16}  # by its key: whether emulation counts
        monkeypatch.setattr(
            torch.cuda,
            "is_bf16_supported",
            lambda including_emulation=True: supported[including_emulation],
        )

    return has


# --- where ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("devices", "expected"), [((), "cpu"), (("mps",), "cpu"), (("cuda", "mps"), "cuda")]
)
def test_auto_is_cuda_where_it_is_and_else_the_cpu(machine, devices, expected):
    """And mps only for who asks for it."""
    machine(*devices)
    assert choose_device(DeviceConfig()).where == torch.device(expected)


@pytest.mark.parametrize(("name", "other"), [("cuda", "mps"), ("mps", "cuda")])
def test_a_device_can_be_asked_for_where_it_is_and_is_refused_elsewhere(machine, name, other):
    machine(name, other)
    assert choose_device(DeviceConfig(device=name)).where == torch.device(name)
    machine(other)
    with pytest.raises(UserError) as caught:
        choose_device(DeviceConfig(device=name))
    for part in (f"--device {name}", torch.__version__, "--device cpu"):
        assert part in str(caught.value)


# --- in which type --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "bfloat16", "expected"),
    [
        ("cpu", True, torch.float32),
        ("mps", True, torch.float32),
        ("cuda", False, torch.float32),  # what a GPU only emulates is slower than float32
        ("cuda", True, torch.bfloat16),
    ],
)
def test_auto_is_bfloat16_where_a_gpu_has_it(machine, name, bfloat16, expected):
    machine("cuda", "mps", bfloat16=bfloat16)
    assert choose_device(DeviceConfig(device=name)).dtype == expected
    assert choose_device(DeviceConfig(device=name, dtype="float32")).dtype == torch.float32


def test_bfloat16_can_be_asked_for_but_not_on_mps(machine):
    machine("cuda", "mps", bfloat16=False)
    for name in ("cpu", "cuda"):
        found = choose_device(DeviceConfig(device=name, dtype="bfloat16"))
        assert (found.where.type, found.dtype) == (name, torch.bfloat16)
    with pytest.raises(UserError, match="--dtype bfloat16 does not work on mps"):
        choose_device(DeviceConfig(device="mps", dtype="bfloat16"))


def test_a_device_says_what_it_is():
    assert str(Device(CPU, torch.float32)) == "float32 on cpu"
    assert str(Device(torch.device("cuda"), torch.bfloat16)) == "bfloat16 on cuda"


# --- compiled -------------------------------------------------------------------------------


def small_model() -> nn.Module:
    return randomise(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)))


def probe(model: nn.Module) -> torch.Tensor:
    return model(torch.ones(2, 3)).sum()


class Table(nn.Embedding):
    """A layer with sparse gradients, which the compiler doesn't know."""

    compilable = False


def test_what_can_be_compiled_is_compiled_and_the_rest_left_to_pytorch(monkeypatch):
    table = Table(5, 3, sparse=True)
    model, disabled, calls = nn.Sequential(table, small_model()), [], []

    def disable(forward: Callable) -> Callable:
        disabled.append(forward.__self__)
        return forward

    def watched_probe(found: nn.Module) -> torch.Tensor:
        calls.append(found)
        return found(torch.tensor([1, 4])).sum()

    monkeypatch.setattr(torch.compiler, "disable", disable)
    monkeypatch.setattr(torch, "compile", lambda found: nn.Sequential(found))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fast = compiled(model, watched_probe)
    assert fast[0] is model
    assert (calls, disabled) == ([fast], [table])
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("where", ["compile", "forward", "backward"])
def test_what_cannot_be_compiled_goes_on_without(monkeypatch, where):
    """As where PyTorch does not support the version of Python yet, or there is no compiler."""
    model = small_model()

    def fail(*args) -> None:
        raise RuntimeError("no compiler was found\nsearched in many places")

    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if where == "forward":
                fail()
            y = model(x)
            y.register_hook(fail)
            return y

    broken = fail if where == "compile" else lambda found: Broken()
    monkeypatch.setattr(torch, "compile", broken)
    with pytest.warns(UserWarning, match="torch.compile does not work here") as caught:
        assert compiled(model, probe) is model
    (warning,) = caught
    assert "going on without: no compiler was found" in str(warning.message)
    assert "\n" not in str(warning.message)
    assert all(p.grad is None for p in model.parameters())
    probe(model).backward()


def test_ctrl_c_while_it_is_compiled_is_no_failure(monkeypatch):
    def interrupted(model: nn.Module) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "compile", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compiled(small_model(), probe)


# --- seeds ----------------------------------------------------------------------------------


def draw(seed: int, purpose: Purpose, *index: int) -> list[float]:
    with torch_seed(CPU, seed, purpose, *index):
        return torch.rand(5).tolist()


def test_one_place_has_one_sequence():
    expected = draw(7, Purpose.DROPOUT, 3, 1)
    torch.rand(100)
    assert draw(7, Purpose.DROPOUT, 3, 1) == expected
    places = [(7, Purpose.DROPOUT, 3, 2), (7, Purpose.DROPOUT, 4, 1), (7, Purpose.DROPOUT, 3)]
    places += [(8, Purpose.DROPOUT, 3, 1), (7, Purpose.SAMPLING, 3, 1), (7, Purpose.DROPOUT)]
    found = [expected, *(draw(*place) for place in places)]
    assert len({tuple(numbers) for numbers in found}) == len(found)


@pytest.mark.parametrize("raises", [False, True])
def test_after_the_block_torch_goes_on_as_before(raises):
    torch.manual_seed(5)
    expected = torch.rand(4).tolist()
    torch.manual_seed(5)
    found = torch.rand(2).tolist()
    try:
        with torch_seed(CPU, 7, Purpose.INITIALISATION):
            torch.rand(9)
            if raises:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert found + torch.rand(2).tolist() == expected


def test_a_seed_on_the_cpu_does_not_start_cuda(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda where: pytest.fail("it was started"))
    draw(7, Purpose.DROPOUT)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_gpu_draws_from_its_place_and_goes_on_as_before():
    cuda = torch.device("cuda")

    def draw_there() -> list[float]:
        with torch_seed(cuda, 7, Purpose.DROPOUT, 3):
            return torch.rand(5, device=cuda).tolist()

    torch.cuda.manual_seed(5)
    expected = torch.rand(4, device=cuda).tolist()
    torch.cuda.manual_seed(5)
    found = torch.rand(2, device=cuda).tolist()
    assert draw_there() == draw_there()
    assert found + torch.rand(2, device=cuda).tolist() == expected
