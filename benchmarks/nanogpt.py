"""A checkout of https://github.com/karpathy/nanoGPT, to run beside ours."""

import importlib.util
import pickle
import shutil
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

if TYPE_CHECKING:
    from sancho.text.corpus import Corpus


def copy_with_text(checkout: Path, folder: Path, corpus: "Corpus") -> Path:
    """Copy a checkout into `folder`, with our text as its data set quijote; return its path."""
    copy = folder / "nanoGPT"
    if not copy.exists():
        shutil.copytree(checkout, copy, ignore=shutil.ignore_patterns(".git", "*.bin", "*.pt"))
        data = copy / "data" / "quijote"
        data.mkdir(parents=True)
        np.asarray(corpus.train, dtype=np.uint16).tofile(data / "train.bin")
        np.asarray(corpus.val, dtype=np.uint16).tofile(data / "val.bin")
        meta = {"vocab_size": corpus.tokenizer.vocab_size}
        (data / "meta.pkl").write_bytes(pickle.dumps(meta))
    return copy


def model_module(checkout: Path) -> ModuleType:
    """Return nanoGPT's model.py, imported."""
    spec = importlib.util.spec_from_file_location("nanogpt_model", checkout / "model.py")
    theirs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(theirs)
    return theirs


def trained_model(copy: Path) -> tuple[nn.Module, int]:
    """Return the model that nanoGPT's train.py left in `out`, on the CPU, and its step."""
    theirs = model_module(copy)
    saved = torch.load(copy / "out" / "ckpt.pt", map_location="cpu", weights_only=True)
    model = theirs.GPT(theirs.GPTConfig(**saved["model_args"])).eval()
    # torch.compile prefixes the names.
    weights = {name.removeprefix("_orig_mod."): w for name, w in saved["model"].items()}
    model.load_state_dict(weights)
    return model, saved["iter_num"]
