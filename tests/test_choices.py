"""Each name that an option of the model can have is known wherever the model is computed."""

import ast
import re
from collections.abc import Collection
from dataclasses import fields, replace
from typing import Literal, get_args, get_origin

import architectures
import numpy as np
from conftest import ROOT

from sancho import numpy_model
from sancho.config import ModelConfig
from sancho.convert import huggingface, page
from sancho.implementation import torch_logits
from sancho.model import GPT
from sancho.shared.weights import weight_shapes

SMALL = replace(architectures.SMALL, ngram_size=1, bias=True)
CHOICES = {o.name: get_args(o.type) for o in fields(ModelConfig) if get_origin(o.type) is Literal}
Known = dict[str, Collection[str]]
"""Names by option. An option that an implementation has no table of is left out."""


def computed(option: str, name: str) -> list[float] | None:
    """Return logits of model.py with a choice, each weight drawn anew; None where it has none."""
    config = replace(SMALL)
    object.__setattr__(config, option, name)  # unchecked, for a name that nobody knows
    shapes = weight_shapes(config).items()
    weights = {key: np.random.default_rng(0).normal(size=shape) for key, shape in shapes}
    weights = {key: array.astype(np.float32) for key, array in weights.items()}
    try:
        model = GPT.with_weights(config, weights)
    except KeyError:
        return None
    return torch_logits(model, np.arange(8)[None])[0, -1].tolist()


def known_to_model_py(option: str) -> set[str]:
    """Return the names of an option with which model.py computes what no other name gives.

    What an unknown name gives may be what the default does.
    """
    default = getattr(SMALL, option)
    usual = computed(option, default)
    known = {default} if usual else set()
    seen = [None, usual, computed(option, "unknown")]
    for name in CHOICES[option]:
        found = computed(option, name)
        if found not in seen:
            known.add(name)
        seen.append(found)
    return known


def text_of(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def known_to_model_js() -> Known:
    """Read its tables: names in quotes, and the keys of ACTIVATIONS."""
    text = text_of("page/engine/model.js")
    (choices,) = re.findall(r"^const CHOICES = {\n(.*?)^};", text, re.MULTILINE | re.DOTALL)
    (functions,) = re.findall(r"^const ACTIVATIONS = {\n(.*?)^};", text, re.MULTILINE | re.DOTALL)
    known = {
        option: re.findall(r"'(\w+)'", names)
        for option, names in re.findall(r"(\w+): \[(.*)\],", choices)
    }
    return known | {"activation": re.findall(r"^  (\w+)[:,]", functions, re.MULTILINE)}


def named_on_the_page() -> Known:
    """Read the tables of what the page calls them."""
    text = text_of("page/ui/words.js")
    tables = re.findall(r"^export const (\w+)_NAMES = {\n(.*?)^};", text, re.MULTILINE | re.DOTALL)
    return {
        table.lower(): re.findall(r"^  (\w+): '\S+',$", names, re.MULTILINE)
        for table, names in tables
    }


def known_to_modeling_sancho() -> Known:
    """Read its tables: it needs transformers to be imported."""
    tables = {
        target.id: [key.value for key in node.value.keys]
        for node in ast.parse(text_of("sancho/convert/modeling_sancho.py")).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
        for target in node.targets
    }
    return {"activation": tables["ACTIVATIONS"] + tables["GATES"]}


def test_every_implementation_knows_every_choice():
    known = {
        "sancho/model.py": {option: known_to_model_py(option) for option in CHOICES},
        "sancho/numpy_model.py": numpy_model.CHOICES,
        "sancho/convert/page.py": page.COMPUTED,
        "page/engine/model.js": known_to_model_js(),
        "sancho/convert/huggingface.py": huggingface.COMPUTED,
        "page/ui/words.js": named_on_the_page(),
        # The others it has no table of, and computes them as model.py does.
        "sancho/convert/modeling_sancho.py": CHOICES | known_to_modeling_sancho(),
        "tests/architectures.py": {
            "norm": architectures.NORMS,
            "position": architectures.POSITIONS,
            "activation": architectures.ACTIVATIONS,
        },
    }
    lacking = [
        f"{path}: {option} {name}"
        for path, names in known.items()
        for option, all_names in CHOICES.items()
        for name in all_names
        if name not in names.get(option, ())
    ]
    assert not lacking, "\n".join(lacking)
