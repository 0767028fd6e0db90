"""The path of a GPU on a machine that has none: tensors without numbers, on a CUDA device.

PyTorch's FakeTensorMode computes shapes, types and devices alone, and an operation on tensors of
two devices fails as on a GPU. Without a driver there is no graph, so gradients are set by hand, and
no sparse one. `pin_memory`, autocast and what GPUs compute stay untried: test_gpu.py.
"""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from sancho.loss import Objective
from sancho.model import GPT
from sancho.optim import make_optimizers, set_learning_rate
from sancho.presets import PRESETS

fake_tensor = pytest.importorskip("torch._subclasses.fake_tensor", reason="here: another PyTorch")
SHAPE = {"vocab_size": 7, "block_size": 8, "n_layer": 2, "n_head": 2, "n_embd": 8, "ngram_rows": 16}
GPU = torch.device("cuda", 0)


class WithoutDriver(TorchFunctionMode):
    """Call by operators what would ask the driver for the device of its tensor."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is Tensor.contiguous:
            return args[0].clone(memory_format=torch.contiguous_format)
        if func is Tensor.__getitem__:
            return indexed(*args)
        return func(*args, **(kwargs or {}))


def indexed(tensor: Tensor, places: object) -> Tensor:
    places = places if isinstance(places, tuple) else (places,)
    dim = 0
    for place in places:
        if place is ...:
            dim += tensor.dim() - len(places) + 1
            continue
        if isinstance(place, int):
            tensor = torch.ops.aten.select.int(tensor, dim, place)
            continue
        if isinstance(place, slice):
            tensor = torch.ops.aten.slice.Tensor(tensor, dim, place.start, place.stop)
        else:
            tensor = torch.ops.aten.index.Tensor(tensor, [None] * dim + [place])
        dim += 1
    return tensor


def on_fake_gpu(module: nn.Module, mode) -> nn.Module:
    """Move a module to a GPU that is not there, its parameters and its buffers."""

    def moved(tensor: Tensor) -> Tensor:
        return fake_tensor.FakeTensor(mode, tensor.detach().to("meta"), GPU)

    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                part._parameters[name] = nn.Parameter(moved(parameter))
        for name, buffer in part._buffers.items():
            part._buffers[name] = moved(buffer)
    return module


def step_on_fake_gpu(preset: str) -> list[Tensor]:
    """Compute the objective of a preset and, without sparse gradients, a step of its optimizers."""
    config = PRESETS[preset]
    objective = Objective(GPT(replace(config.model, **SHAPE)), replace(config.train, look_ahead=2))
    mode = fake_tensor.FakeTensorMode(allow_non_fake_inputs=False)
    on_fake_gpu(objective, mode)
    with mode, WithoutDriver(), torch.no_grad():
        optimizers = make_optimizers(
            objective.model, config.train, list(objective.prediction_heads)
        )
        set_learning_rate(optimizers, 0.5)
        ids = torch.zeros(3, 8, dtype=torch.int64, device=GPU)
        logits = objective.model(ids)
        losses = objective(ids, ids, objective.look_ahead_weight(0, 9))
        if config.model.ngram_size == 1:
            for p in objective.parameters():
                p.grad = torch.ones_like(p)
            for optimizer in optimizers:
                optimizer.step()
        states = [x for o in optimizers for state in o.state.values() for x in state.values()]
    assert logits.shape == (3, 8, 7)
    assert states
    return [logits, *losses, *objective.parameters(), *states]


@pytest.mark.parametrize("preset", PRESETS)
def test_all_that_a_step_computes_lies_on_the_gpu(preset):
    tensors = step_on_fake_gpu(preset)
    assert {tensor.device for tensor in tensors} == {GPU}


@pytest.mark.parametrize("kind", ["a buffer", "a new tensor"])
def test_a_tensor_that_is_left_on_the_cpu_fails(monkeypatch, kind):
    """Or the test above could not."""
    forward = GPT.embed

    def embed(self: GPT, ids: Tensor) -> Tensor:
        offset = torch.zeros(8, 8) if kind == "a new tensor" else self.of_the_cpu
        return forward(self, ids) + offset

    monkeypatch.setattr(GPT, "embed", embed)
    monkeypatch.setattr(GPT, "of_the_cpu", torch.zeros(8, 8), raising=False)
    with pytest.raises((RuntimeError, AssertionError), match=r"device|FakeTensor"):
        step_on_fake_gpu("base")
