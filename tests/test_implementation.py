"""Which implementation of the model writes, and that no other than the trained one does unsaid."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from architectures import SMALL, every_architecture
from conftest import CPU, ROOT, assert_refused, contents, random_gpt, run, succeed
from runs import corpus_of, start, train_config

from sancho import checkpoint
from sancho import model as model_module
from sancho.checkpoint import Checkpoint
from sancho.config import ModelConfig
from sancho.errors import OtherFunction
from sancho.implementation import model_proof, numpy_model
from sancho.model import GPT
from sancho.numpy_model import NumpyGPT
from sancho.run.state import TrainingState
from sancho.shared.proof import require_proof
from sancho.training import fit

TEXT = "en un lugar de la mancha de cuyo nombre no quiero acordarme " * 20


@pytest.fixture(scope="module")
def saved() -> Checkpoint:
    """Of a run of a few steps; nobody trains on with its arrays."""
    corpus = corpus_of(TEXT)
    state = start(corpus, train_config(max_iters=3))
    [*fit(state, corpus)]
    found = state.to_checkpoint(corpus)
    return replace(found, weights=random_gpt(found.model_config).arrays(), proof=None)


def proven(saved: Checkpoint) -> Checkpoint:
    return replace(saved, proof=model_proof(saved.build_model()))


@pytest.fixture
def leaky(monkeypatch):
    """Who calls it changes what relu2 is in model.py, as docs/changing.md teaches, or back."""
    own = model_module.ACTIVATIONS["relu2"]

    def change(back: bool = False) -> None:
        changed = own if back else lambda x: F.leaky_relu(x, 0.5).square()
        monkeypatch.setitem(model_module.ACTIVATIONS, "relu2", changed)

    return change


@every_architecture
def test_numpy_computes_the_proof_of_every_architecture(config):
    model = random_gpt(config).train()
    found = model_proof(model)
    assert model.training
    require_proof(found, NumpyGPT(config, model.arrays()).logits, config, "numpy")
    with torch.autocast("cpu", torch.bfloat16):
        np.testing.assert_array_equal(model_proof(model), found)


def written(tmp_path, saved: Checkpoint):
    checkpoint.save(tmp_path / "x.safetensors", saved)
    return tmp_path / "x.safetensors"


def test_a_file_without_a_proof_is_not_checked(tmp_path, saved):
    found = checkpoint.load(written(tmp_path, saved))
    assert found.proof is None
    assert isinstance(found.build_implementation(), NumpyGPT)


@pytest.mark.filterwarnings("ignore:overflow")
def test_logits_that_are_not_finite_prove_nothing_and_the_file_says_so(tmp_path, saved, caplog):
    head = np.full_like(saved.weights["head.weight"], 3e38)  # sums of a few of them are infinite
    weights = saved.weights | {"head.weight": head}
    found = checkpoint.load(written(tmp_path, proven(replace(saved, weights=weights))))
    assert found.proof is not None and len(found.proof) == 0
    assert isinstance(found.build_implementation(), GPT)
    assert "no proof in the checkpoint" in caplog.text


def test_a_save_in_the_middle_changes_no_bit_of_the_training():
    def weights_of(saves: bool) -> dict[str, bytes]:
        corpus = corpus_of(TEXT)
        state = start(corpus, train_config(eval_interval=3), dropout=0.2, ngram_dropout=0.2)
        for _ in fit(state, corpus):
            if saves:
                state.to_checkpoint(corpus)
        return {name: array.tobytes() for name, array in state.model.arrays().items()}

    assert weights_of(True) == weights_of(False)


def test_a_changed_model_that_stops_before_an_evaluation_is_written_by_pytorch(
    tmp_path, leaky, monkeypatch
):
    """And once numpy_model.py follows, by NumPy, without another training."""
    leaky()
    corpus = corpus_of(TEXT)
    model = random_gpt(replace(SMALL, vocab_size=corpus.tokenizer.vocab_size))
    state = TrainingState.from_model(model, train_config(), CPU)
    path = written(tmp_path, state.to_checkpoint(corpus))
    args = ("--checkpoint", path, "--start", "en", "--max_new_tokens", "5")
    said = succeed("sample.py", *args).err
    assert said.count("note: ") == 1 and "sancho/numpy_model.py computes another function" in said
    for command in ("to-page", "to-huggingface"):
        done = run("convert.py", command, "--checkpoint", path, "--output", tmp_path / "made")
        assert_refused(done, "convert.py", "sancho/numpy_model.py computes another function")
    own = {"relu2": lambda x: np.square(np.maximum(x, 0.5 * x))}
    monkeypatch.setattr("sancho.numpy_model.ACTIVATIONS", own)
    monkeypatch.setattr(
        "sancho.numpy_model.CHOICES",
        {"norm": ("rmsnorm",), "position": ("rope",), "activation": own},
    )
    assert succeed("sample.py", *args).err == ""
    leaky(back=True)
    assert succeed("sample.py", *args).err == ""


def test_where_neither_computes_it_the_text_is_written_and_both_are_named(tmp_path, leaky, saved):
    leaky()
    path = written(tmp_path, proven(saved))
    leaky(back=True)
    args = ("--checkpoint", path, "--start", "en", "--max_new_tokens", "5")
    done = succeed("sample.py", *args)
    assert len(done.out) == len("en") + 5 + 1
    for file in ("sancho/numpy_model.py", "sancho/model.py"):
        assert f"note: {file} computes another function than the one that was trained" in done.err


def test_without_pytorch_what_differs_is_one_line(tmp_path, leaky, saved, monkeypatch):
    leaky()
    path = written(tmp_path, proven(saved))
    monkeypatch.setattr("sancho.implementation.find_spec", lambda name: None)
    done = run("sample.py", "--checkpoint", path, "--start", "en")
    assert_refused(done, "sample.py", "sancho/numpy_model.py computes another", "PyTorch")


@pytest.mark.parametrize("how", ["resume", "init_from", "evaluate"])
def test_who_goes_on_with_another_function_is_told(project, tmp_path, leaky, how):
    size = "--n_layer=1 --n_head=1 --n_embd=8 --block_size=8 --ngram_rows=16 --threads=1".split()
    out = tmp_path / "out"
    args = ["--corpus", "tiny", "--max_iters", "4", "--device", "cpu", *size]
    succeed("train.py", *args, "--muon_learning_rate", "1", "--out_dir", out)
    leaky()
    if how == "resume":
        done = succeed("train.py", "--resume", "--max_iters", "6", "--out_dir", out)
    elif how == "init_from":
        options = ["--corpus", "tiny", "--max_iters", "4", "--init_from", out]
        done = succeed("train.py", *options, "--out_dir", tmp_path / "new")
    else:
        done = succeed("evaluate.py", "--checkpoint", out)
    assert "note: sancho/model.py computes another function than the one" in done.err


def test_numpy_refuses_a_name_that_it_does_not_know(saved, monkeypatch):
    known = {"norm": ("layernorm",), "position": ("rope",), "activation": ("relu2",)}
    monkeypatch.setattr("sancho.numpy_model.CHOICES", known)
    model = saved.build_model()
    with pytest.raises(OtherFunction, match=r"numpy_model\.py does not know --norm rmsnorm"):
        numpy_model(model.config, model.arrays(), model_proof(model))
    assert isinstance(saved.build_implementation(), GPT)


def test_a_checkpoint_of_a_run_holds_its_proof(tmp_path, project):
    out = tmp_path / "out"
    size = "--n_layer=1 --n_head=1 --n_embd=8 --block_size=8 --ngram_rows=16 --threads=1".split()
    succeed("train.py", "--corpus", "tiny", "--max_iters", "4", *size, "--out_dir", out)
    assert {"best.safetensors", "last.safetensors"} <= contents(out).keys()
    for name in ("best.safetensors", "last.safetensors"):
        found = checkpoint.load(out / name)
        np.testing.assert_array_equal(found.proof, model_proof(found.build_model()))


def test_a_model_can_be_pickled():
    ids = torch.arange(6)[None]
    size = {"vocab_size": 9, "block_size": 8, "n_layer": 1, "n_head": 1, "n_embd": 8}
    for options in ({}, {"activation": "relu", "bias": True, "norm": "layernorm"}):
        model = random_gpt(ModelConfig(**size, **options, ngram_size=1))
        copy = pickle.loads(pickle.dumps(model))
        assert torch.equal(copy(ids), model(ids))
    ours = checkpoint.load(ROOT / "tests" / "golden" / "mini.safetensors").build_numpy()
    copy = pickle.loads(pickle.dumps(ours))
    assert (copy.logits(ids.numpy()) == ours.logits(ids.numpy())).all()
