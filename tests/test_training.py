import functools
import math
import re
import subprocess
import sys
import threading
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from architectures import ReadByTorch, assert_close
from conftest import CPU, ROOT, assert_same_arrays, corpus_from, randomise
from runs import (
    ALL_PRESETS,
    CPU_BFLOAT16,
    GPUS,
    TOKENS_PER_STEP,
    bits,
    bits_of,
    corpus_of,
    figures,
    losses_of,
    resume,
    run,
    save,
    slow,
    start,
    start_preset,
    tolerance,
    train_config,
)

from sancho import checkpoint
from sancho import model as model_module
from sancho.generate import continue_texts
from sancho.loss import cross_entropy
from sancho.machine.seeds import Purpose
from sancho.model import GPT
from sancho.numpy_model import NumpyGPT
from sancho.run.batches import Batches
from sancho.run.state import NonFiniteLoss, TrainingState
from sancho.text.corpus import Corpus
from sancho.training import fit

on_every_device = pytest.mark.parametrize(
    ("device", "threads"),
    [
        *((CPU, 1), (CPU, 3), (CPU_BFLOAT16, 1), (CPU_BFLOAT16, 2)),
        *(pytest.param(*gpu.values, 1, marks=gpu.marks) for gpu in GPUS),
    ],
    ids=str,
)


@pytest.fixture(autouse=True)
def short_samples(monkeypatch) -> None:
    """What is written at an evaluation takes longer than all the rest here."""
    monkeypatch.setattr("sancho.training.SAMPLE_LENGTH", 5)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Corpus:
    text = (ROOT / "data" / "apocrifo.txt").read_text(encoding="utf-8")[:2000]
    return corpus_from(text)


# --- one seed, one run ----------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("module", "off"), [("", "ngram_dropout"), ("ngram_embedding.", "dropout")]
)
def test_the_seed_decides_the_weights_and_the_dropout_of_each_part_of_a_step(
    corpus, threads, module, off
):
    masks = set()
    weights = set()
    for seed in (1, 1, 2):
        preset = start_preset(corpus, "mini", threads=threads, seed=seed)
        model = replace(preset.model.config, **{off: 0.0})
        state = TrainingState.start(model, preset.train_config, CPU, corpus.train)
        weights.add(bits(state.model.arrays())["token_embedding.weight"])
        state.model.ngram_embedding.weight.data.add_(1.0)  # zeros can't be told from dropped ones
        state.model.get_submodule(f"{module}dropout").register_forward_hook(
            lambda module, args, output: masks.add((output == 0).numpy().tobytes())
        )
        run(state, corpus, 3)
    assert (len(weights), len(masks)) == (2, 3 * 2 * threads * 2)


@pytest.mark.parametrize("preset", ALL_PRESETS)
@on_every_device
def test_losses_are_those_of_one_thread_in_float32(corpus, preset, device, threads):
    """With its dropout, but on a GPU; and on a CPU every evaluation is in float32."""
    torch.set_float32_matmul_precision("highest")
    options = {"preset": preset, "dropout": 0.2 if device.on_cpu else 0.0, "log_interval": 1}
    expected = losses_of(run(start_preset(corpus, threads=1, **options), corpus))
    state = start_preset(corpus, device=device, threads=threads, **options)
    kinds = set()

    def look(module: torch.nn.Module, args: tuple, output: torch.Tensor) -> None:
        in_main = threading.current_thread() is threading.main_thread()
        kinds.add((module.training, output.dtype, in_main))

    state.model.head.register_forward_hook(look)
    found = losses_of(run(state, corpus))
    evaluated = torch.float32 if device.on_cpu else device.dtype
    expected_kinds = {(True, device.dtype, threads == 1), (False, evaluated, threads == 1)}
    to_compare = (False, torch.float32, True)  # as NumPy's model is compared with it
    assert kinds | {to_compare} == expected_kinds | {to_compare}
    assert threads == 1 or expected_kinds <= kinds
    assert len(found) == len(expected) == 8 + 2
    assert found == pytest.approx(expected, abs=tolerance(device))
    for p in state.model.parameters():
        assert (p.dtype, p.device.type) == (torch.float32, device.torch_device.type)
    saved = state.to_checkpoint(corpus)
    assert {array.dtype for array in saved.optimizer.values()} == {np.dtype("f4")}


@pytest.mark.parametrize("preset", ALL_PRESETS)
@on_every_device
def test_a_run_that_is_resumed_is_the_same_run(tmp_path, corpus, preset, device, threads):
    """On a CPU to the bit: whenever it is saved, and whatever torch has drawn before."""

    def begin() -> TrainingState:
        return start_preset(corpus, preset, device=device, threads=threads)

    def check(seen: list[tuple], state: TrainingState, first: int) -> None:
        if device.on_cpu:
            assert seen == expected[first:]
            assert bits_of(state) == bits_of(whole)
        else:  # some sums come in any order
            losses = losses_of(expected[first:])
            assert losses_of(seen) == pytest.approx(losses, abs=tolerance(device))

    before = torch.get_rng_state()
    whole = begin()
    expected = run(whole, corpus)
    assert [figure[0] for figure in expected] == [1, 2, 3, 4, 5, 5, 6, 7, 8, 8]
    assert torch.equal(before, torch.get_rng_state())

    torch.manual_seed(1)
    state = begin()
    saved = [save(tmp_path / "0", state, corpus)]
    seen = []
    for report in fit(state, corpus):
        seen.append(figures(report))
        saved.append(save(tmp_path / f"{len(saved)}", state, corpus))
        # Between a step and its evaluation a run can be saved, too.
        assert state.is_evaluation_due == (len(seen) in (5, 9))
        assert state.is_done == (len(seen) == 10)
    check(seen, state, 0)
    for first, path in list(enumerate(saved))[0 if (device, threads) == (CPU, 1) else 5 :]:
        loaded = checkpoint.load(path)
        kept = deepcopy(loaded)
        state = TrainingState.restore(loaded, loaded.train_config, device)
        in_memory = state.to_checkpoint(corpus)
        check(run(state, corpus), state, first)
        assert loaded.progress == in_memory.progress == kept.progress
        assert_same_arrays(loaded.optimizer, kept.optimizer)
    state.train_config = replace(state.train_config, max_iters=7)
    assert state.is_done


def test_evaluating_more_often_changes_nothing(corpus):
    quiet = start(corpus, train_config(eval_interval=100, log_interval=100), dropout=0.2)
    run(quiet, corpus)
    watched = start(corpus, train_config(eval_interval=1, log_interval=1), dropout=0.2)
    run(watched, corpus)
    assert bits_of(watched) == bits_of(quiet)
    assert watched.progress.val_loss == quiet.progress.val_loss


# --- threads and processes ------------------------------------------------------------------


def test_a_run_of_one_thread_has_the_same_bits_however_many_torch_has(corpus):
    found = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        state = start(corpus, train_config(max_iters=3, threads=1), n_embd=128, block_size=128)
        run(state, corpus)
        found.append(bits_of(state))
        torch.set_num_threads(1)
    assert found[0] == found[1]


# --- what a step does -----------------------------------------------------------------------


def gradients_of_step(state: TrainingState, corpus: Corpus) -> dict[str, torch.Tensor]:
    """Make a step; return the gradients that the optimizers got."""
    found = {}
    zero_grad = state.optimizers[0].zero_grad

    def look() -> None:
        found.update((name, p.grad.to_dense()) for name, p in state.model.named_parameters())
        zero_grad()

    state.optimizers[0].zero_grad = look
    next(fit(state, corpus))
    assert all(p.grad is None for p in state.model.parameters())
    return found


def test_accumulated_micro_batches_equal_one_batch(corpus):
    config = train_config(gradient_accumulation_steps=2, grad_clip=0)
    state, twin = (start(corpus, config, ngram_dropout=0) for _ in range(2))
    randomise(state.model)
    randomise(twin.model)
    found = gradients_of_step(state, corpus)

    batches = Batches(corpus.train, 8, config, CPU.torch_device)
    parts = [batches.get(0, micro_step) for micro_step in (0, 1)]
    assert not torch.equal(parts[0][0], parts[1][0])
    inputs, targets = (torch.cat(pair) for pair in zip(*parts, strict=True))
    loss = cross_entropy(twin.model(inputs), targets)
    loss.backward()
    assert state.progress.recent_losses == pytest.approx([loss.item()], abs=1e-6)
    assert twin.model.ngram_embedding.weight.grad.is_sparse
    for name, p in twin.model.named_parameters():
        assert_close(found[name], p.grad.to_dense(), atol=1e-6, rtol=1e-5)
        assert found[name].abs().max() > 1e-5


def multiply_gradient(module: torch.nn.Module, factor: float) -> None:
    """From now on, give `factor` times the gradient to all that a module computes its output of."""

    def hook(module, args, output):
        output.register_hook(lambda gradient: factor * gradient)

    module.register_forward_hook(hook)


@pytest.mark.parametrize("limit", [0.01, 0.5])
def test_the_gradient_is_clipped_but_not_that_of_the_table(corpus, limit):
    """Only the dense gradients make the norm, and only they are scaled by it."""
    dense = []
    table = []
    for clip, scale in ((0, 1.0), (limit, 1.0), (limit, 1000.0)):
        state = start(corpus, train_config(optimizer="adamw", grad_clip=clip))
        randomise(state.model)
        multiply_gradient(state.model.ngram_embedding, scale)
        found = gradients_of_step(state, corpus)
        table.append(found.pop("ngram_embedding.weight"))
        dense.append(torch.cat([gradient.flatten() for gradient in found.values()]))
    assert dense[0].norm() > 1.1 * limit
    assert_close(dense[1], dense[0] * (limit / dense[0].norm()), atol=1e-5)
    assert torch.equal(dense[2], dense[1])
    assert torch.equal(table[1], table[0])
    assert table[0].norm() > 0.5
    assert_close(table[2], 1000 * table[0], rtol=1e-5)


# --- torch.compile --------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["classic", pytest.param("base", marks=slow)])
def test_a_compiled_run_is_the_same_run(corpus, monkeypatch, preset):
    """What torch.compile would hand to a compiler is run as it is."""
    whole, state = (start_preset(corpus, preset, compile=True) for _ in range(2))
    with monkeypatch.context() as patch:  # on some CPUs complex products round otherwise
        patch.setattr(torch.compiler, "is_compiling", lambda: True)
        patch.setattr(torch, "compile", lambda model: model)
        expected = run(whole, corpus)
    # Neither the steps nor the evaluation after the fifth have it compiled again.
    monkeypatch.setattr("torch._dynamo.config.error_on_recompile", True)
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    torch.compiler.reset()
    assert run(state, corpus) == expected
    assert bits_of(state) == bits_of(whole)
    torch.compiler.reset()


@pytest.mark.parametrize("device", [pytest.param(CPU, marks=slow), *GPUS], ids=str)
@pytest.mark.parametrize("preset", ["classic", "base"])
def test_a_run_that_is_really_compiled_has_nearly_the_same_losses(corpus, recwarn, preset, device):
    """Without dropout, which a compiled model draws in its own way."""
    torch.compiler.reset()
    expected = losses_of(run(start_preset(corpus, preset, 0.0), corpus))
    state = start_preset(corpus, preset, 0.0, device, compile=True)
    found = losses_of(run(state, corpus))
    notes = "Torchinductor does not support"
    assert [str(w.message) for w in recwarn if re.search(notes, str(w.message))] == []
    assert found == pytest.approx(expected, abs=tolerance(device))
    torch.compiler.reset()


# --- a model.py of one's own ----------------------------------------------------------------


def nearby_attention(self: model_module.MultiHeadAttention, x: torch.Tensor) -> torch.Tensor:
    """See the newest five positions alone: in the first five places that is all there is."""
    q, k, v = self.queries_keys_values(x)
    places = torch.arange(x.shape[1])
    distance = places[:, None] - places
    y = F.scaled_dot_product_attention(q, k, v, (distance >= 0) & (distance < 5))
    return self.proj(y.transpose(1, 2).reshape(x.shape))


@pytest.mark.parametrize("change", ["", "activation", "attention"])
def test_where_numpy_does_not_follow_a_changed_model_pytorch_writes(
    corpus, monkeypatch, caplog, change
):
    monkeypatch.setattr("sancho.training.SAMPLE_LENGTH", 40)
    own = model_module.ACTIVATIONS["relu2"]
    if change == "activation":
        monkeypatch.setitem(model_module.ACTIVATIONS, "relu2", lambda x: 1.5 * own(x))
    if change == "attention":
        monkeypatch.setattr(model_module.MultiHeadAttention, "forward", nearby_attention)
    state = start(corpus, train_config())
    randomise(state.model)
    *_, last = fit(state, corpus)
    texts = []
    for model in (ReadByTorch(state.model), NumpyGPT(state.model.config, state.model.arrays())):
        options = {"max_new_tokens": 40, "seed": 1605}
        texts += continue_texts(model, corpus.tokenizer, corpus.val[:1], **options)
    assert last.sample == texts[0]
    agrees = not change
    assert agrees == (texts[0] == texts[1])
    assert len(caplog.messages) == caplog.text.count("sancho/numpy_model.py") == (not agrees)
    writer = state.to_checkpoint(corpus).build_implementation()
    assert isinstance(writer, NumpyGPT if agrees else GPT)


# --- runs that end before -------------------------------------------------------------------


@pytest.mark.parametrize(("patience", "last"), [(1, 4), (3, 8)])
def test_early_stopping(tmp_path, patience, last):
    """On a text whose end is ever less likely, the more is learned of its beginning."""
    corpus = corpus_of("a" * 900 + "b" * 100)
    state = start(corpus, train_config(max_iters=10, eval_interval=2, patience=patience))
    reports = []
    for report in fit(state, corpus):
        reports.append(report)
        assert state.is_done == (report.step == last and not state.is_evaluation_due)
        if report.step == 3:
            save(tmp_path / "x", state, corpus)
    evaluations = [report for report in reports if report.val_loss is not None]
    assert [report.step for report in evaluations] == list(range(2, last + 1, 2))
    assert [report.step for report in reports if report.is_best] == [2]
    losses = [report.val_loss for report in evaluations]
    assert losses == sorted(losses)
    assert (state.progress.best_val_loss, state.progress.val_loss) == (losses[0], losses[-1])
    assert state.progress.evaluations_since_best == last // 2 - 1
    # Patience is counted across a resumption, and once lost does not come back.
    assert run(resume(tmp_path / "x"), corpus)[-1][0] == last
    assert run(resume(save(tmp_path / "x", state, corpus)), corpus) == []


@pytest.mark.parametrize(("grad_clip", "factor"), [(0.0, math.inf), (1.0, math.inf), (1.0, 1)])
def test_a_gradient_that_is_not_finite(corpus, grad_clip, factor):
    """The loss itself is sound, but the step would spoil the weights.

    What reaches a row of the table reaches a character too, and that is looked at.
    """
    state = start(corpus, train_config(grad_clip=grad_clip, eval_interval=100))
    reports = fit(state, corpus)
    next(reports)
    next(reports)
    if factor == 1:
        multiply_gradient(state.model.dropout, math.nan)
    state.model.head.weight.register_hook(lambda gradient: gradient * factor)
    with pytest.raises(NonFiniteLoss, match="at step 3;"):
        next(reports)


@pytest.mark.parametrize(("at_chance", "told"), [(range(1, 31), 10), ({*range(1, 31)} - {8}, 14)])
def test_a_model_that_learns_nothing_is_told_once(corpus, monkeypatch, caplog, at_chance, told):
    """After three reports running on steps after the warm-up."""
    chance = math.log(corpus.tokenizer.vocab_size)
    state = start(corpus, train_config(max_iters=30, log_interval=2, warmup_iters=4))

    def of_chance(losses, batch: tuple, parameters: list, *_: object) -> torch.Tensor:
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        return torch.tensor(chance if state.progress.step + 1 in at_chance else 0.9 * chance)

    monkeypatch.setattr("sancho.training.backward", of_chance)
    steps = []
    for report in fit(state, corpus):
        steps += [report.step] * sum("learns nothing" in said for said in caplog.messages)
    assert steps[0] == told and len(caplog.messages) == 1
    assert f"at step {told} the loss is no better than chance, {chance:.3f}: " in caplog.text


def test_a_bad_loss_is_found_before_it_is_saved(corpus):
    """On a GPU losses are looked at only now and then; the step must be right all the same."""
    state = start(corpus, train_config())
    for value in (math.nan, math.inf):
        with pytest.raises(NonFiniteLoss):
            state.take_evaluation(value)
    assert state.progress.best_val_loss is None
    for _ in range(2):
        state.take_evaluation(2.0)
    assert state.progress.evaluations_since_best == 1, "as good is no better"
    state.progress.step = 7
    state.progress.recent_losses = [1.0]
    state.unread_losses = [torch.tensor(1.0), torch.tensor(math.nan), torch.tensor(math.nan)]
    with pytest.raises(NonFiniteLoss, match="at step 6;"):
        state.to_checkpoint(corpus)


# --- reports --------------------------------------------------------------------------------


def test_a_report_says_what_there_is_to_say(corpus, monkeypatch):
    monkeypatch.setattr("sancho.training.SAMPLE_LENGTH", 30)
    options = {"max_iters": 11, "eval_interval": 5, "gradient_accumulation_steps": 2}
    states = [start(corpus, train_config(log_interval=n, **options)) for n in (1, 2)]
    for state in states:
        randomise(state.model)
    every = [loss for _, _, _, loss, *_ in run(states[0], corpus) if loss is not None]
    reports = list(fit(state, corpus))
    assert [r.step for r in reports] == [1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10, 10, 11, 11]
    assert [r.step for r in reports if r.val_loss is not None] == [5, 10, 11]
    told = [(r.step, r.train_loss) for r in reports if r.train_loss is not None]
    ends = [0, 2, 4, 5, 6, 8, 10, 11]
    assert [step for step, _ in told] == ends[1:]
    for begin, (end, loss) in zip(ends, told, strict=False):
        assert loss == pytest.approx(np.mean(every[begin:end]), rel=1e-12)
    for report in reports:
        assert report.tokens == report.step * TOKENS_PER_STEP * 2
        assert (report.val_bpc is None) == (report.val_loss is None) == (report.sample is None)
        assert not (report.is_best and report.val_loss is None)
        assert not (report.train_loss is None and report.val_loss is not None)
        assert report.tokens_per_second > 0
    last = reports[-1]
    assert last.val_bpc == pytest.approx(last.val_loss / math.log(2))
    options = {"max_new_tokens": 30, "seed": 1605}
    assert continue_texts(state.model, corpus.tokenizer, corpus.val[:1], **options) == [last.sample]


def test_the_learning_rate_of_a_step_is_told_and_moves_the_weights(corpus):
    rates = {"learning_rate": 0.5, "ngram_learning_rate": 0.5, "optimizer": "adamw"}
    state = start(corpus, train_config(max_iters=10, warmup_iters=3, decay_fraction=0.4, **rates))
    told = []
    for report in fit(state, corpus):
        told += [report.lr] if report.val_loss is None else []
        assert {optimizer.lr for optimizer in state.optimizers} == {report.lr}
    expected = [0.125, 0.25, 0.375, 0.5, 0.5, 0.5, 0.5, 0.375, 0.25, 0.125]
    assert told == pytest.approx(expected)


def test_seconds_hold_evaluations_and_speed_does_not(corpus, monkeypatch):
    """On a clock that goes on by a second for each step, and by 100 for each evaluation."""
    clock = [0.0]

    def step(batches: Batches, *place: int, get=Batches.get) -> tuple:
        clock[0] += 1
        return get(batches, *place)

    def slow(*args: object) -> list[np.ndarray]:
        clock[0] += 100
        return [np.ones(1)]

    monkeypatch.setattr("sancho.training.time.perf_counter", lambda: clock[0])
    monkeypatch.setattr("sancho.loss.losses_of_windows", slow)
    monkeypatch.setattr(Batches, "get", step)
    state = start(corpus, train_config(max_iters=12, eval_interval=3))
    for report in fit(state, corpus):
        clock[0] += 9_000  # what is done between two reports is no time of training
        evaluations = (report.step - (report.val_loss is None)) // 3
        assert report.seconds == report.step + 100 * evaluations
        if report.train_loss is not None:
            assert report.tokens_per_second == TOKENS_PER_STEP


def test_of_a_long_text_a_part_is_evaluated(corpus, monkeypatch):
    monkeypatch.setattr("sancho.training.EVALUATED", 40)
    state = start(corpus, train_config(max_iters=1))
    sizes = []
    state.model.register_forward_hook(lambda model, args, _: sizes.append(args[0].numel()))
    monkeypatch.setattr("sancho.training.implementation_of", lambda *_: object())
    monkeypatch.setattr("sancho.training.generate", lambda *_, **__: [])
    *_, last = fit(state, corpus)
    assert sum(sizes) == 40 and last.val_loss is not None


def test_masks_are_not_drawn_as_batches_are(corpus, monkeypatch):
    purposes = []
    monkeypatch.setattr(
        "sancho.shared.dropout.seed_of", lambda *place: purposes.append(place[1]) or 0
    )
    run(start(corpus, train_config(max_iters=1, threads=1), dropout=0.2), corpus)
    assert set(purposes) == {Purpose.DROPOUT}


def test_the_module_says_what_to_start():
    done = subprocess.run(
        [sys.executable, "-m", "sancho.training"], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("sancho.training is a part of the library; start train.py\n")
