"""microsancho computes, learns, writes and saves what the library does."""

import ast
import json
import subprocess
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

import evaluate
import microsancho
from sancho import checkpoint
from sancho.config import DeviceConfig, ModelConfig, SampleConfig, TrainConfig
from sancho.generate import stream_texts
from sancho.loss import validation_loss
from sancho.machine.device import choose_device
from sancho.model import GPT
from sancho.run.batches import Batches
from sancho.run.state import TrainingState
from sancho.shared import ngrams
from sancho.text.corpus import Corpus
from sancho.text.sources import corpus_of
from sancho.tokenizer import CharTokenizer
from sancho.training import fit

FOLDER = Path(__file__).resolve().parent.parent
FILE = FOLDER / "ramas" / "microsancho.py"
SAMPLE_TEXT = FOLDER.parent / "data" / "apocrifo.txt"
TABLE, KEYS = "ngram_embedding.weight", "ngram_embedding.keys"
SMALL = microsancho.Modelo(
    vocab_size=13, block_size=16, n_layer=3, n_head=2, n_embd=8, ngram_size=5, ngram_rows=60
)
IDS = np.random.default_rng(1605).integers(SMALL.vocab_size, size=(4, SMALL.block_size + 1))


def config_of(modelo: microsancho.Modelo) -> ModelConfig:
    """Return the library's configuration of the same model, every option said."""
    return ModelConfig(
        **modelo._asdict(),
        dropout=0.0,
        bias=False,
        norm="rmsnorm",
        position="rope",
        activation="relu2",
        ngram_dropout=0.0,
        embedding_skip=True,
        qk_norm=True,
        tie_embeddings=False,
    )


def train_config_of(o: microsancho.Entrenamiento) -> TrainConfig:
    return TrainConfig(
        **o._asdict(),
        gradient_accumulation_steps=1,
        optimizer="muon",
        look_ahead=0,
        logit_scale=1.0,
        eval_interval=o.max_iters,
        log_interval=1,
        patience=0,
        threads=1,
    )


def random_weights(modelo: microsancho.Modelo, dtype: type) -> dict[str, np.ndarray]:
    """Return weights none of which is zero; n-grams of the first window have their own rows."""
    random = np.random.default_rng(3)
    keys = microsancho.vocabulario(np.concatenate([IDS[0], IDS[0]]), modelo)
    weights = microsancho.parametros_nuevos(modelo, keys, random)
    for name in weights.keys() - {KEYS}:
        weights[name] = random.normal(0, 0.4, weights[name].shape).astype(dtype)
    return weights


def test_it_needs_numpy_alone():
    source = FILE.read_text(encoding="utf-8")
    nodes = list(ast.walk(ast.parse(source)))
    lines = [node.lineno for node in nodes if isinstance(node, ast.stmt)]
    assert len(lines) == len(set(lines)), "a statement a line"
    imported = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            imported.add(node.module.partition(".")[0])
    assert imported - sys.stdlib_module_names == {"numpy", "safetensors"}


def test_loss_and_every_gradient_are_pytorchs():
    weights = random_weights(SMALL, np.float64)
    model = GPT.with_weights(config_of(SMALL), weights).double()
    for name, weight in model.named_parameters():  # with_weights has made them float32
        weight.data.copy_(torch.from_numpy(weights[name]))
    inputs, targets = torch.from_numpy(IDS[:, :-1]), torch.from_numpy(IDS[:, 1:])
    logits = model(inputs)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()

    ours, notes = microsancho.adelante(weights, IDS[:, :-1], SMALL)
    our_loss, d_logits = microsancho.entropia_cruzada(ours, IDS[:, 1:])
    gradients, (rows, of_rows) = microsancho.atras(weights, d_logits, notes)
    gradients[TABLE] = np.zeros_like(weights[TABLE])
    gradients[TABLE][rows] = of_rows
    np.testing.assert_allclose(ours, logits.detach().numpy(), rtol=0, atol=1e-9)
    assert our_loss == pytest.approx(loss.item(), abs=1e-12)
    assert len(set(rows)) > 10, "rows of their own, and the one that the others share"
    assert gradients.keys() == weights.keys() - {KEYS}
    for name, weight in model.named_parameters():
        grad = weight.grad.to_dense().numpy()
        assert grad.any(), name
        np.testing.assert_allclose(gradients[name], grad, rtol=0, atol=1e-9, err_msg=name)


def test_ngrams_have_the_rows_of_the_library():
    text = np.frombuffer(SAMPLE_TEXT.read_bytes(), np.uint8)[:20_000].astype(np.int64)
    modelo = SMALL._replace(vocab_size=256, ngram_rows=3_000)
    keys = microsancho.vocabulario(text, modelo)
    np.testing.assert_array_equal(keys, ngrams.vocabulary(text, 5, 3_000))
    table = GPT(config_of(modelo)).ngram_embedding
    table.learn_vocabulary(text)
    windows = text[:640].reshape(4, 160)
    rows = table.rows_of(torch.from_numpy(windows)).numpy()
    assert len(np.unique(rows)) > 500
    np.testing.assert_array_equal(microsancho.filas_de(windows, keys, modelo), rows)


def make_corpus(n: int, vocab_size: int) -> Corpus:
    """Return a text with an order that can be learned: each id follows from the last, or nearly."""
    random = np.random.default_rng(7)
    ids = (np.arange(n) * 5 + random.integers(3, size=n).cumsum()) % vocab_size
    tokenizer = CharTokenizer("".join(map(chr, range(97, 97 + vocab_size))))
    ids = ids.astype(np.uint8)
    return Corpus("text", tokenizer, ids[: n - n // 10], ids[n - n // 10 :], "")


def test_windows_come_in_the_order_of_the_library():
    """In the first reading of the text and in the next ones."""
    o = microsancho.Entrenamiento(batch_size=3, max_iters=40)
    corpus = make_corpus(800, 13)
    batches = Batches(corpus.train, 16, train_config_of(o), torch.device("cpu"))
    ours = microsancho.comienzos(len(corpus.train), 16, o.seed)
    assert 3 * 40 > 2 * len(corpus.train) / 16
    for step in range(40):
        inputs, _ = batches.get(step, 0)
        for window, start in zip(inputs.numpy(), islice(ours, 3), strict=True):
            np.testing.assert_array_equal(window, corpus.train[start : start + 16])


def fit_both(modelo, o, corpus):
    """Train with the library and here from the same weights; return both losses and weights."""
    weights = random_weights(modelo, np.float32)
    weights |= microsancho.parametros_nuevos(modelo, weights[KEYS], np.random.default_rng(1))
    unlearned = np.full(modelo.ngram_rows, ngrams.NO_KEY, np.int32)
    model = GPT.with_weights(config_of(modelo), weights | {KEYS: unlearned})
    device = choose_device(DeviceConfig(device="cpu", dtype="float32"))
    model.ngram_embedding.learn_vocabulary(corpus.train)
    state = TrainingState.from_model(model, train_config_of(o), device)
    reports = [r for r in fit(state, corpus) if r.train_loss is not None]
    losses = [r.train_loss for r in reports] + [reports[-1].val_loss]

    weights[KEYS] = microsancho.vocabulario(corpus.train.astype(np.int64), modelo)
    ours = list(microsancho.entrenar(weights, corpus.train.astype(np.int64), modelo, o))
    ours.append(microsancho.validar(weights, corpus.val.astype(np.int64), modelo))
    return losses, state.model.arrays(), ours, weights


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_twenty_steps_are_those_of_fit(weight_decay):
    """From new weights, in float32: losses, validation loss and what has become of the weights."""
    o = microsancho.Entrenamiento(
        max_iters=20, batch_size=4, warmup_iters=5, weight_decay=weight_decay, grad_clip=0.5
    )
    modelo = SMALL._replace(n_embd=16, ngram_rows=500)
    losses, theirs, ours, weights = fit_both(modelo, o, make_corpus(3_000, 13))
    assert losses[0] == pytest.approx(np.log(13), abs=1e-6) and losses[-1] < losses[0] - 0.3
    np.testing.assert_allclose(ours, losses, rtol=0, atol=2e-5)
    assert theirs.keys() == weights.keys()
    for name, array in theirs.items():
        np.testing.assert_allclose(weights[name], array, rtol=0, atol=2e-4, err_msg=name)


@pytest.mark.slow
def test_twenty_steps_of_mini_on_a_book_are_those_of_fit():
    corpus = corpus_of(SAMPLE_TEXT)
    modelo = microsancho.Modelo(vocab_size=corpus.tokenizer.vocab_size)
    o = microsancho.Entrenamiento(max_iters=20)
    losses, theirs, ours, weights = fit_both(modelo, o, corpus)
    np.testing.assert_allclose(ours, losses, rtol=0, atol=1e-4)
    np.testing.assert_array_equal(weights[KEYS], theirs[KEYS])


def test_the_loss_of_a_text_is_the_librarys_to_the_last_window():
    weights = random_weights(SMALL, np.float32)
    model = GPT.with_weights(config_of(SMALL), weights).eval()
    ids = make_corpus(1_005, 13).val.astype(np.int64)  # no whole number of windows
    ours = microsancho.validar(weights, ids, SMALL)
    assert len(ids) % 16 > 1
    assert ours == pytest.approx(validation_loss(model, ids), abs=1e-5)


@pytest.fixture
def saved(tmp_path):
    text = "la razón de la sinrazón que a mi razón se hace\n" * 30
    book, path = tmp_path / "libro.txt", tmp_path / "m.safetensors"
    book.write_text(text, encoding="utf-8", newline="")
    text, characters, ids = microsancho.leer(book)
    modelo = SMALL._replace(vocab_size=len(characters))
    weights = random_weights(modelo, np.float32)
    o = microsancho.Entrenamiento(max_iters=20)
    microsancho.guardar(path, weights, text, modelo, o)
    return path, weights, modelo, ids, book


def test_what_it_saves_is_a_checkpoint(saved):
    path, weights, modelo, ids, book = saved
    loaded = checkpoint.load(path)
    corpus = corpus_of(book)
    assert loaded.model_config == config_of(modelo)
    assert loaded.characters == corpus.tokenizer.characters
    assert loaded.corpus_sha256 == corpus.sha256
    assert loaded.corpus_lengths == corpus.lengths
    assert loaded.train_config.max_iters == loaded.progress.step == 20
    np.testing.assert_array_equal(np.concatenate([corpus.train, corpus.val]), ids)
    assert loaded.weights.keys() == weights.keys()
    for name, array in weights.items():
        np.testing.assert_array_equal(loaded.weights[name], array)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_it_writes_the_letters_that_the_library_writes(saved, temperature):
    """Past the longest context, too."""
    path, weights, modelo, ids, _ = saved
    loaded = checkpoint.load(path)
    sampling = SampleConfig(temperature=temperature, min_p=0.1)
    options = {"stop": (), "samples": (0,), "seed": 0, "max_new_tokens": 60}
    pieces = stream_texts(
        loaded.build_numpy(), loaded.tokenizer, ids[:21].astype(np.int64), sampling, **options
    )
    ours = microsancho.escribir(weights, ids[:21], modelo, 60, temperature)
    assert loaded.tokenizer.decode(list(ours)) == "".join(piece for (piece,) in pieces)


def test_evaluate_opens_what_it_saves(saved, capsys):
    path, weights, modelo, ids, book = saved
    evaluate.main({"checkpoint": path, "corpus": (str(book),), "json": True})
    found = json.loads(capsys.readouterr().out)
    ours = microsancho.validar(weights, ids[len(ids) - len(ids) // 10 :], modelo)
    assert found["loss"] == pytest.approx(ours, abs=1e-4)


@pytest.mark.slow
def test_from_a_book_to_letters_that_sample_writes_too(tmp_path):
    book = tmp_path / "libro.txt"
    book.write_bytes(SAMPLE_TEXT.read_bytes()[:9_999].rpartition(b"\n")[0] + b"\n")

    def run(script: Path, *args: str | Path) -> str:
        command = [sys.executable, str(script), *map(str, args)]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, encoding="utf-8", check=True, timeout=300
        )
        return done.stdout

    printed = run(FILE, book)
    own_text = printed.partition("en la validación")[2].partition("\n")[2]
    assert len(own_text) >= 400
    saved = ["--checkpoint", tmp_path / "microsancho.safetensors"]
    text = run(FOLDER.parent / "sample.py", *saved, "--max_new_tokens", "400", "--seed", "0")
    assert text.strip("\n") == own_text.strip("\n")


def test_a_text_without_one_window_is_refused(tmp_path):
    book = tmp_path / "libro.txt"
    book.write_text("corto\n" * 40, encoding="utf-8")
    done = subprocess.run([sys.executable, str(FILE), str(book)], capture_output=True, text=True)
    assert done.returncode == 1 and "libro.txt es demasiado corto" in done.stderr
    assert "Traceback" not in done.stderr
