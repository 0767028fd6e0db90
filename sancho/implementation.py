"""Which implementation of the model writes on a CPU: NumPy's, which is faster, or PyTorch's.

NumPy writes if it computes the function that was trained, as the proof shows (proof.py). Where it
does not, model.py was changed and numpy_model.py was not, and PyTorch writes.
"""

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from sancho.config import ModelConfig
from sancho.errors import OtherFunction, note
from sancho.numpy_model import NumpyGPT
from sancho.shared.proof import proof_of, require_proof

if TYPE_CHECKING:
    from sancho.model import GPT

Weights = dict[str, np.ndarray]


def numpy_model(config: ModelConfig, weights: Weights, proof: np.ndarray | None) -> NumpyGPT:
    """Return a model for inference in NumPy.

    Raises OtherFunction if NumPy does not compute the model of the proof.
    """
    model = NumpyGPT(config, weights)
    require_proof(proof, model.logits, config, NumpyGPT.file)
    return model


def implementation(
    config: ModelConfig,
    weights: Weights,
    proof: np.ndarray | None,
    otherwise: Callable[[], "GPT"],
    tell: Callable[[str], object] = note,
) -> "NumpyGPT | GPT":
    """Return the model in NumPy if that computes what was trained, or else what `otherwise` gives.

    tell: is told why PyTorch has to write. Raises OtherFunction if PyTorch is not installed.
    """
    try:
        return numpy_model(config, weights, proof)
    except OtherFunction as why:
        if find_spec("torch") is None:
            advice = "install PyTorch (pip install torch) to let sancho/model.py write"
            raise OtherFunction(f"{why}; {advice}") from None
        tell(
            f"{why}: PyTorch writes instead, more slowly. Until you change that file like "
            "sancho/model.py, to-page and to-huggingface refuse the model"
        )
        return otherwise()


def implementation_of(model: "GPT", tell: Callable[[str], object]) -> "NumpyGPT | GPT":
    """Return a PyTorch model in NumPy if that computes the same, or else the model."""
    return implementation(model.config, model.arrays(), model_proof(model), lambda: model, tell)


def torch_logits(model: "GPT", ids: np.ndarray) -> np.ndarray:
    """Return the logits of model.py, (B, T) ids -> (B, T, V) float32.

    They are computed in evaluation mode, on the model's device, in float32 or the autocast type.
    """
    import torch  # not above: to write on a CPU takes no PyTorch

    from sancho.model import evaluating

    with evaluating(model), torch.inference_mode():
        tensor = torch.from_numpy(ids).to(model.head.weight.device)
        return model(tensor).float().cpu().numpy()


def model_proof(model: "GPT") -> np.ndarray:
    """Return the proof of what model.py computes, in float32 on the CPU, or UNPROVEN."""
    import torch  # as above

    if model.head.weight.device.type != "cpu":
        model = deepcopy(model).to("cpu")
    with torch.autocast("cpu", enabled=False):
        return proof_of(partial(torch_logits, model), model.config)
