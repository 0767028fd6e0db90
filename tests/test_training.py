import functools
import itertools
import math
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import CodeType

import numpy as np
import pytest
import torch
from architectures import SMALL, assert_close, random_ids
from conftest import CPU, ROOT, prepared, randomise
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
    optimizer_of,
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
from sancho.config import RunConfig, TrainConfig
from sancho.corpus import Corpus
from sancho.errors import UserError
from sancho.generate import continue_texts
from sancho.machine.distributed import World
from sancho.machine.threads import thread_pool
from sancho.model import GPT, cross_entropy
from sancho.optim import learning_rate_factor, set_learning_rate
from sancho.presets import PRESETS
from sancho.training import (
    Batches,
    NonFiniteLoss,
    Objective,
    TrainingState,
    character_losses,
    fit,
    losses_in_groups,
    validation_loss,
    windows,
)

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
    return prepared(text, tmp_path_factory.mktemp("data") / "tiny")


# --- one seed, one run ----------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("module", "off"), [("", "ngram_dropout"), ("ngram_embedding.", "dropout")]
)
def test_the_seed_decides_the_weights_and_the_dropout_of_each_part_of_a_step(
    corpus, threads, module, off
):
    masks, weights = set(), set()
    for seed in (1, 1, 2):
        preset = start_preset(corpus, "mini", threads=threads, seed=seed)
        model = replace(preset.model.config, **{off: 0.0})
        state = TrainingState.start(model, preset.config, CPU, corpus.train)
        weights.add(bits(state.model.arrays())["token_embedding.weight"])
        state.model.ngram_embedding.weight.data.add_(1.0)  # zeros can't be told from dropped ones
        state.model.get_submodule(f"{module}dropout").register_forward_hook(
            lambda module, args, output: masks.add((output == 0).numpy().tobytes())
        )
        run(state, corpus, 3)
    assert (len(weights), len(masks)) == (2, 3 * 2 * threads * 2)


# --- a run on every device ------------------------------------------------------------------


@pytest.mark.parametrize("preset", ALL_PRESETS)
@on_every_device
def test_losses_are_those_of_one_thread_in_float32(corpus, preset, device, threads):
    """But for the precision; and on a CPU every evaluation is in float32, in every thread."""
    torch.set_float32_matmul_precision("highest")
    expected = losses_of(run(start_preset(corpus, preset, 0.0, log_interval=1, threads=1), corpus))
    state, kinds = start_preset(corpus, preset, 0.0, device, log_interval=1, threads=threads), set()
    state.model.head.register_forward_hook(
        lambda module, args, output: kinds.add((module.training, output.dtype))
    )
    found = losses_of(run(state, corpus, device=device))
    evaluated = torch.float32 if device.on_cpu else device.dtype
    assert kinds == {(True, device.dtype), (False, evaluated)}
    assert len(found) == len(expected) == 8 + 2
    assert found == pytest.approx(expected, abs=tolerance(device))
    assert (found == expected) == ((device, threads) == (CPU, 1))
    assert {(p.dtype, p.device.type) for p in state.model.parameters()} == {
        (torch.float32, device.torch_device.type)
    }
    assert {array.dtype for array in optimizer_of(state).values()} == {np.dtype("f4")}


@pytest.mark.parametrize("preset", ALL_PRESETS)
@on_every_device
def test_a_run_that_is_resumed_is_the_same_run(tmp_path, corpus, preset, device, threads):
    """On a CPU to the bit: whenever it is saved, and whatever torch has drawn before."""

    def begin() -> TrainingState:
        return start_preset(corpus, preset, device=device, threads=threads)

    def check(seen: list[tuple], state: TrainingState, first: int = 0) -> None:
        if device.on_cpu:
            assert seen == expected[first:]
            assert bits_of(state) == bits_of(whole)
        else:  # some sums come in any order
            losses = losses_of(expected[first:])
            assert losses_of(seen) == pytest.approx(losses, abs=tolerance(device))

    before, whole = torch.get_rng_state(), begin()
    expected = run(whole, corpus, device=device)
    assert [figure[0] for figure in expected] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert torch.equal(before, torch.get_rng_state())

    torch.manual_seed(1)
    state, seen, saved = begin(), [], []
    save(tmp_path / "0", state, corpus)
    for report in fit(state, corpus, device):
        if report.evaluated is None:
            seen.append(figures(report))
        saved.append((len(seen), save(tmp_path / f"{len(saved)}", state, corpus)))
    check(seen, state)
    assert len(saved) - len(seen) == 2 * (1 + math.ceil(3 / threads)), "while it evaluates"
    for first, path in saved if (device, threads) == (CPU, 1) else saved[4:7]:
        state = resume(path, device)
        check(run(state, corpus, device=device), state, first)
    assert run(state, corpus, device=device) == []
    state.config = replace(state.config, max_iters=7)
    assert state.is_done


def test_going_on_changes_nothing_in_a_checkpoint_in_memory(tmp_path, corpus):
    state = start_preset(corpus, "mini")
    run(state, corpus, 4)
    in_memory = state.to_checkpoint(corpus, with_optimizer=True)
    before = deepcopy(in_memory.progress)
    assert (before.step, len(before.recent_losses)) == (4, 1)
    loaded = checkpoint.load(save(tmp_path / "x", state, corpus))
    rest = run(state, corpus)
    assert in_memory.progress == before
    for _ in range(2):
        assert run(TrainingState.restore(loaded, loaded.train, CPU), corpus) == rest
        assert loaded.progress == before


# --- a loop that is interrupted, as a notebook's kernel is ----------------------------------


class InterruptedCall:
    """Raises KeyboardInterrupt at the n-th place where Python looks for a Ctrl+C.

    Python looks when a function of Python begins and when any call has ended. Counted are our
    functions, and the calls that they make; or only one function, and those that it makes.
    """

    def __init__(self, number: int, function: str | None = None) -> None:
        self.left, self.ours = number, str(Path(checkpoint.__file__).parent)
        self.function = function

    def __enter__(self) -> "InterruptedCall":
        sys.setprofile(self._count)
        return self

    def __exit__(self, *exception) -> None:
        sys.setprofile(None)

    def _count(self, frame, event: str, argument) -> None:
        frames = (frame, frame if event.startswith("c_") else frame.f_back)
        if event != "c_call" and any(each and self._counts(each.f_code) for each in frames):
            self.left -= 1
            if self.left == 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    def _counts(self, code: CodeType) -> bool:
        return code.co_filename.startswith(self.ours) and self.function in (None, code.co_name)


# Where Python tidies up, it goes on.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("function", "every", "least"),
    [
        ("advance", 1, 7),
        ("evaluate", 5, 7),
        ("_step", 5, 7),
        pytest.param(None, 2, 500, marks=slow),
    ],
)
def test_ctrl_c_at_any_call_leaves_a_run_that_goes_on(tmp_path, corpus, function, every, least):
    """Between a step and what is noted of it nothing may be interrupted.

    Wherever the second step was, the run can be saved and goes on; and if nothing had moved, to
    the same bits.
    """
    options = {"gradient_accumulation_steps": 2, "eval_interval": 2, "log_interval": 2}
    config, total, bit_for_bit = train_config(max_iters=3, **options), 0, 0

    def begin() -> TrainingState:
        return start(corpus, config, n_layer=1, dropout=0.2)

    whole = begin()
    after = {0: bits_of(whole)} | {r.step: bits_of(whole) for r in fit(whole, corpus, CPU)}
    for number in range(1, 1_000_000, every):
        state = begin()
        reports = fit(state, corpus, CPU)
        report = next(reports)
        try:
            with InterruptedCall(number, function) as interruption:
                while report.val_loss is None:
                    report = next(reports)
        except KeyboardInterrupt:
            total += 1
        else:
            if interruption.left > 0:
                break
        reports.close()
        progress, step = state.progress, state.progress.step
        assert report.step <= step <= report.step + 1, number
        assert progress.tokens == step * TOKENS_PER_STEP * 2, number
        modes = [module.training for module in state.model.modules()]
        assert modes[0] or not any(modes), number
        untouched = bits_of(state) == after[step]
        path = save(tmp_path / "x", state, corpus)
        # The second step tells the losses, if it comes so far.
        assert len(progress.recent_losses) in {1: {1}, 2: {0, 2}}[step], number
        again = state if number % 2 else resume(path)
        left = {r.step for r in fit(again, corpus, CPU)} - {step}  # whose evaluation may be left
        assert left == set(range(step + 1, 4)), number
        assert all(p.isfinite().all() for p in again.model.parameters()), number
        assert not untouched or bits_of(again) == after[3], number
        bit_for_bit += untouched
    assert bit_for_bit > total / 2
    assert total >= least


def test_evaluating_more_often_changes_nothing(corpus):
    quiet = start(corpus, train_config(eval_interval=100, log_interval=100), dropout=0.2)
    run(quiet, corpus)
    watched = start(corpus, train_config(eval_interval=1, log_interval=1), dropout=0.2)
    run(watched, corpus)
    assert bits_of(watched) == bits_of(quiet)
    assert watched.progress.val_loss == quiet.progress.val_loss


# --- the loss and its prediction heads ------------------------------------------------------


def loss_by_hand(objective: Objective, ids: torch.Tensor, after: torch.Tensor, weight: float):
    """Add −log p of every character that every head should name, one after another, in float64.

    ids: (B, T); after: (B, T), the character that follows each.
    """
    vectors, (B, T) = objective.model.features(ids).double(), ids.shape
    text = torch.cat((ids[:, :1], after), dim=1)  # character t + 1 of it follows place t
    weights, total = (1.0, 0.3 * weight, 0.15 * weight, 0.075 * weight), 0.0
    scales = [objective.logit_scale, 1, 1, 1]
    for j, head in enumerate([objective.model.head.weight, *objective.look_ahead]):
        surprises = []
        for b, t in itertools.product(range(B), range(T - j)):
            logits = scales[j] * head.double() @ vectors[b, t]
            surprises.append(logits.logsumexp(0) - logits[text[b, t + 1 + j]])
        if surprises:
            total += weights[j] * sum(surprises) / len(surprises)
    return float(total)


@pytest.mark.parametrize("length", [1, 2, 8])
@pytest.mark.parametrize("look_ahead", [0, 1, 3])
@torch.no_grad()
def test_head_j_names_the_character_j_places_after_the_next(look_ahead, length):
    objective = randomise(Objective(GPT(SMALL), TrainConfig(look_ahead=look_ahead, logit_scale=2)))
    text = torch.from_numpy(random_ids(2, length + 1))
    ids, after = text[:, :-1], text[:, 1:]
    loss, total = objective(ids, after, torch.tensor(0.5))
    assert total.item() == pytest.approx(loss_by_hand(objective, ids, after, 0.5), abs=1e-5)
    alone, same = objective(ids, after, None)
    assert alone.item() == same.item() == loss.item()
    headless = Objective(objective.model, TrainConfig(look_ahead=0, logit_scale=2))
    expected = loss_by_hand(headless, ids, after, 0.0)
    assert loss.item() == pytest.approx(expected, abs=1e-5)


def test_the_weight_of_the_heads_falls_from_one_to_nothing_at_seven_tenths():
    objective = Objective(GPT(SMALL), TrainConfig(look_ahead=2))
    weights = [objective.look_ahead_weight(step, 10) for step in range(10)]
    assert [w.item() for w in weights[:7]] == pytest.approx([1 - step / 7 for step in range(7)])
    assert weights[7:] == [None] * 3
    headless = Objective(objective.model, TrainConfig(look_ahead=0))
    assert headless.look_ahead_weight(0, 10) is None


@torch.no_grad()
def test_the_scale_is_applied_in_float32():
    """To multiply in bfloat16 would round the logits once more."""
    objective = randomise(Objective(GPT(SMALL), TrainConfig(look_ahead=0, logit_scale=1.13)))
    ids, after = (torch.from_numpy(random_ids(2, 8, seed=seed)) for seed in (1, 2))
    with torch.autocast("cpu", torch.bfloat16):
        logits, (loss, _) = objective.model(ids), objective(ids, after, None)
    assert logits.dtype == torch.bfloat16
    assert torch.equal(loss, cross_entropy(1.13 * logits.float(), after))


def test_heads_change_what_is_learned_but_not_what_is_told(corpus):
    states = [start(corpus, train_config(look_ahead=n, log_interval=1)) for n in (2, 0)]
    seen = [run(state, corpus) for state in states]
    assert seen[0][0] == seen[1][0], "the first loss is that of the model alone"
    assert seen[0][3:] != seen[1][3:]
    assert all(head.abs().max() > 0 for head in states[0].objective.look_ahead)


# --- the validation loss --------------------------------------------------------------------


@torch.no_grad()
def losses_by_hand(model: GPT, ids: np.ndarray) -> np.ndarray:
    """−log p of every character but the first, window by window, in float64."""
    block_size, losses = model.config.block_size, []
    for begin in range(0, len(ids) - 1, block_size):
        window = [int(i) for i in ids[begin : begin + block_size + 1]]
        logits = model(torch.tensor([window[:-1]]))[0].double()
        for row, target in zip(logits, window[1:], strict=True):
            losses.append((row.exp().sum().log() - row[target]).item())
    return np.array(losses)


@pytest.mark.parametrize(
    ("block_size", "length"), [(1, 2), (1, 20), (8, 2), (8, 8), (8, 9), (8, 10), (8, 60)]
)
def test_losses_in_windows_are_those_by_hand(block_size, length):
    model, ids = randomise(GPT(replace(SMALL, block_size=block_size))), random_ids(length)
    expected = losses_by_hand(model, ids)
    assert abs(expected.mean() - math.log(11)) > 1e-3
    for batch_size, threads, dtype in ((1, 1, "u1"), (2, 3, "<u2"), (7, 2, "i8"), (1000, 1, "u1")):
        ids = ids.astype(dtype)
        sizes = [len(inputs) for inputs, _ in windows(ids, block_size, batch_size)]
        assert sizes[0] == min(batch_size, max((length - 1) // block_size, 1))
        assert max(sizes) <= batch_size
        found = character_losses(model, ids, batch_size, threads)
        assert_close(found, expected, atol=1e-5)
        loss = validation_loss(model, ids, batch_size, threads)
        assert loss == pytest.approx(expected.mean(), abs=1e-6)
    with thread_pool(1) as one:
        parts = [
            [*losses_in_groups(model, windows(ids, block_size, 2), 2, one, World(rank, 3))]
            for rank in range(3)
        ]
    assert len({len(groups) for groups in parts}) == 1, "all are asked for their sums as often"
    found = np.concatenate([losses for groups in parts for losses in groups])
    assert_close(np.sort(found), np.sort(expected), atol=1e-5)


class Second(World):
    """The second of two processes; what the first one computes is nothing."""

    def _reduce(self, tensor: torch.Tensor, operation: object) -> torch.Tensor:
        return tensor

    def _gather(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor


def test_processes_and_threads_share_an_evaluation(corpus, monkeypatch):
    monkeypatch.setattr("sancho.training.EVALUATED_AT_ONCE", 1)
    state, places = start(corpus, train_config(max_iters=2, threads=2, batch_size=8)), []
    state.config = replace(state.config, gradient_accumulation_steps=2)
    state.model.register_forward_hook(
        lambda *args: places.append(threading.current_thread() is threading.main_thread())
    )
    list(fit(state, corpus, CPU, world=Second(1, 2)))
    assert places.count(False) == 25 // 2, "every second window, in threads of their own"


@pytest.mark.parametrize("threads", [1, 2])
def test_a_pool_of_threads_computes_on_a_core_each_and_leaves_no_trace(threads):
    torch.set_num_threads(3)
    try:
        for error in (None, ValueError):
            with pytest.raises(error) if error else nullcontext(), thread_pool(threads) as pool:
                assert pool(lambda _: torch.get_num_threads(), range(9)) == [1] * 9
                if error:
                    raise error
            assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(1)


def test_of_a_long_text_whole_windows_all_over_it_are_evaluated(tmp_path, corpus, monkeypatch):
    """The same ones at each evaluation of a run, and after it was stopped in one."""
    monkeypatch.setattr("sancho.training.EVALUATED", 100)
    monkeypatch.setattr("sancho.training.EVALUATED_AT_ONCE", 3)
    texts, losses = [], []

    def read(model: GPT, args: tuple, output: torch.Tensor) -> None:
        if not model.training:
            texts[-1] += args[0].tolist()

    config = train_config(max_iters=4, eval_interval=1, learning_rate=0, threads=1)
    state = start(corpus, replace(config, muon_learning_rate=0, ngram_learning_rate=0))
    randomise(state.model)
    while not state.is_done:
        state = resume(save(tmp_path / "x", state, corpus))
        state.model.register_forward_hook(read)
        for report in fit(state, corpus, CPU):
            if report.evaluated == 0:
                texts.append([])
                told = []
            elif report.evaluated:
                told.append(report.evaluated)
            else:
                losses.append(report.val_loss)
                break
        assert told == [0.24, 0.48, 0.72, 0.96]
    assert len(set(losses)) == 1 and len(losses) == 4
    assert all(text == texts[0] for text in texts)
    val = corpus.val.tolist()
    starts = [next(s for s in range(0, 200, 8) if val[s : s + 8] == window) for window in texts[0]]
    assert starts == list(range(0, 192, 16))
    whole = [window for window, _ in windows(corpus.val, 8, 3, 199)]
    assert sum(len(window) for window in whole) == 25, "one that is not longer is read whole"


@pytest.mark.parametrize("training", [False, True])
def test_validation_loss_leaves_no_trace_and_has_no_dropout(training):
    model = randomise(GPT(replace(SMALL, dropout=0.5, ngram_dropout=0.5))).train(training)
    weights, ids = bits(model.arrays()), random_ids(60)
    expected = validation_loss(randomise(GPT(SMALL)), ids)
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    assert validation_loss(model, ids) == expected
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert (np.random.get_state()[1] == numpy_state).all()
    assert all(module.training == training for module in model.modules())
    assert all(p.grad is None for p in model.parameters())
    assert bits(model.arrays()) == weights
    with pytest.raises(IndexError):
        validation_loss(model, np.array([1, 200, 3], dtype=np.uint8))
    assert all(module.training == training for module in model.modules())
    model(torch.zeros(1, 8, dtype=torch.long)).sum().backward()


@pytest.mark.parametrize("length", [0, 1])
def test_too_few_ids_are_an_error(length):
    for loss in (character_losses, validation_loss):
        with pytest.raises(ValueError, match="at least two"):
            loss(GPT(SMALL), random_ids(length))


def test_the_number_of_threads_follows_cores_and_windows_and_is_kept(corpus, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    for asked, batch_size, expected in ((0, 6, 4), (0, 3, 3), (2, 6, 2)):
        state = start(corpus, train_config(batch_size=batch_size, threads=asked))
        assert state.config.threads == expected
        assert state.to_checkpoint(corpus, with_optimizer=False).train.threads == expected


# --- what a step does -----------------------------------------------------------------------


def gradients_of_step(state: TrainingState, corpus: Corpus) -> dict[str, torch.Tensor]:
    """Make a step; return the gradients that the optimizers got."""
    found, zero_grad = {}, state.optimizers[0].zero_grad

    def look() -> None:
        found.update((name, p.grad.to_dense()) for name, p in state.model.named_parameters())
        zero_grad()

    state.optimizers[0].zero_grad = look
    next(fit(state, corpus, CPU))
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

    set_learning_rate(twin.optimizers, learning_rate_factor(0, config))
    twin.optimizers[0].step()  # RowAdagrad
    ours, theirs = (each.model.ngram_embedding.weight for each in (state, twin))
    assert_close(ours, theirs, atol=1e-4)


def test_gradients_may_have_any_strides(corpus, monkeypatch):
    """As those of a compiled model have."""
    whole, state = (start_preset(corpus, "mini") for _ in range(2))
    expected, grad = run(whole, corpus), torch.autograd.grad

    def transposed(*args, **options) -> list[torch.Tensor | None]:
        found = grad(*args, **options)
        return [g if g is None or g.is_sparse else g.t().clone().t() for g in found]

    monkeypatch.setattr(torch.autograd, "grad", transposed)
    assert run(state, corpus) == expected
    assert bits_of(state) == bits_of(whole)


def multiply_gradient(module: torch.nn.Module, factor: float) -> None:
    """From now on, give `factor` times the gradient to all that a module computes its output of."""

    def hook(module, args, output):
        output.register_hook(lambda gradient: factor * gradient)

    module.register_forward_hook(hook)


@pytest.mark.parametrize("limit", [0.01, 0.5])
def test_the_gradient_is_clipped_but_not_that_of_the_table(corpus, limit):
    """Only the dense gradients make the norm, and only they are scaled by it."""
    dense, table = [], []
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


@pytest.fixture
def graphs(monkeypatch) -> Iterator[list]:
    """What torch.compile would hand to a compiler; it is run as it is."""
    found = []
    backend = functools.partial(
        torch.compile, backend=lambda graph, _: found.append(graph) or graph
    )
    monkeypatch.setattr(torch, "compile", backend)
    torch.compiler.reset()
    yield found
    torch.compiler.reset()


@pytest.mark.parametrize("device", [CPU, pytest.param(CPU_BFLOAT16, marks=slow)], ids=str)
@pytest.mark.parametrize("preset", ALL_PRESETS)
def test_a_compiled_run_is_the_same_run(
    tmp_path, corpus, graphs, recwarn, monkeypatch, preset, device
):
    whole, state = (start_preset(corpus, preset) for _ in range(2))
    whole.run = state.run = RunConfig(compile=True)
    with monkeypatch.context() as patch:  # on some CPUs complex products round otherwise
        patch.setattr(torch.compiler, "is_compiling", lambda: True)
        patch.setattr(torch, "compile", lambda model: model)
        expected = run(whole, corpus, device=device)
    seen = run(state, corpus, 1, device)
    begun = len(graphs)
    seen += run(state, corpus, 6, device)
    # Neither the steps nor the evaluation after the fifth have it compiled again.
    assert len(graphs) == begun > 0
    state = resume(save(tmp_path / "x", state, corpus))
    assert seen + run(state, corpus, device=device) == expected
    assert bits_of(state) == bits_of(whole)
    assert [str(w.message) for w in recwarn if "torch.compile does not" in str(w.message)] == []
    torch.compiler.reset()
    graphs.clear()
    assert run(state, corpus, device=device) == graphs == []


@pytest.mark.parametrize("device", [pytest.param(CPU, marks=slow), *GPUS], ids=str)
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_a_run_that_is_really_compiled_has_nearly_the_same_losses(corpus, recwarn, preset, device):
    """Without dropout, which a compiled model draws in its own way."""
    torch.compiler.reset()
    expected = losses_of(run(start_preset(corpus, preset, 0.0), corpus))
    state = start_preset(corpus, preset, 0.0, device)
    state.run = RunConfig(compile=True)
    found = losses_of(run(state, corpus, device=device))
    notes = "Torchinductor does not support"
    assert [str(w.message) for w in recwarn if re.search(notes, str(w.message))] == []
    assert found == pytest.approx(expected, abs=tolerance(device))
    torch.compiler.reset()


# --- runs that end before -------------------------------------------------------------------


@pytest.mark.parametrize(("patience", "last"), [(1, 4), (3, 8)])
def test_early_stopping(tmp_path, patience, last):
    """On a text whose end is ever less likely, the more is learned of its beginning."""
    corpus, reports, done = corpus_of("a" * 900 + "b" * 100), [], []
    state = start(corpus, train_config(max_iters=10, eval_interval=2, patience=patience))
    for report in fit(state, corpus, CPU):
        if report.evaluated is None:
            reports.append(report)
            done.append(state.is_done)
        if report.step == 3:
            save(tmp_path / "x", state, corpus)
    assert reports[-1].step == last
    assert done == [False] * (last - 1) + [True]
    assert [report.step for report in reports if report.is_best] == [2]
    losses = [report.val_loss for report in reports if report.val_loss is not None]
    assert losses == sorted(losses)
    assert state.progress.best_val_loss == losses[0]
    assert state.progress.val_loss == losses[-1]
    assert state.progress.evaluations_since_best == last // 2 - 1
    # Patience is counted across a resumption, and once lost does not come back.
    assert run(resume(tmp_path / "x"), corpus)[-1][0] == last
    assert run(resume(save(tmp_path / "x", state, corpus)), corpus) == []


@pytest.mark.parametrize(("optimizer", "grad_clip"), [("muon", 1.0), ("adamw", 0.0)])
def test_a_learning_rate_beyond_all_bounds(corpus, optimizer, grad_clip):
    config, done = train_config(learning_rate=1e30, optimizer=optimizer, grad_clip=grad_clip), 0
    with pytest.raises(NonFiniteLoss, match="learning rates") as caught:
        for report in fit(start(corpus, config), corpus, CPU):
            done = report.step
    assert f"at step {done + 1};" in str(caught.value)


@pytest.mark.parametrize(("grad_clip", "factor"), [(0.0, math.inf), (1.0, math.inf), (1.0, 1)])
def test_a_gradient_that_is_not_finite(corpus, grad_clip, factor):
    """The loss itself is sound, but the step would spoil the weights.

    What reaches a row of the table reaches a character too, and that is looked at.
    """
    state = start(corpus, train_config(grad_clip=grad_clip, eval_interval=100))
    reports = fit(state, corpus, CPU)
    next(reports)
    next(reports)
    if factor == 1:
        multiply_gradient(state.model.dropout, math.nan)
    state.model.head.weight.register_hook(lambda gradient: gradient * factor)
    with pytest.raises(NonFiniteLoss, match="at step 3;"):
        next(reports)


def test_a_validation_loss_that_is_not_finite(corpus):
    state = start(corpus, train_config())
    for value in (math.nan, math.inf):
        with pytest.raises(NonFiniteLoss):
            state.take_evaluation(value)
    assert state.progress.best_val_loss is None


def test_a_bad_loss_is_found_before_it_is_saved(corpus):
    """On a GPU losses are looked at only now and then; the step must be right all the same."""
    state = start(corpus, train_config())
    state.progress.step, state.progress.recent_losses = 7, [1.0]
    state.unread_losses = [torch.tensor(1.0), torch.tensor(math.nan), torch.tensor(math.nan)]
    with pytest.raises(NonFiniteLoss, match="at step 6;"):
        state.to_checkpoint(corpus, with_optimizer=True)


def test_a_text_that_is_too_short_is_refused_by_the_call_itself(corpus):
    """Before anything is asked of the generator. How long it must be: test_corpus.py."""
    with pytest.raises(UserError, match="at least"):
        fit(start(corpus, train_config(), block_size=2000), corpus, CPU)


# --- batches --------------------------------------------------------------------------------


def batches_of(ids: np.ndarray, **options) -> Batches:
    return Batches(ids, 8, train_config(**options), CPU.torch_device)


@pytest.mark.parametrize(
    ("length", "first", "dtype"), [(9, 0, np.uint8), (10, 0, "<u2"), (12, 65524, "<u2")]
)
def test_every_start_within_range_is_drawn(length, first, dtype):
    ids, starts = np.arange(first, first + length).astype(dtype), set()
    batches = batches_of(ids, batch_size=64)
    for step in range(4):
        inputs, targets = batches.get(step, 0)
        assert inputs.dtype == targets.dtype == torch.int64
        assert torch.equal(inputs + 1, targets)
        assert torch.equal(inputs - inputs[:, :1], torch.arange(8).expand(64, 8))
        starts |= set(inputs[:, 0].tolist())
    assert starts == set(range(first, first + length - 8))


@pytest.mark.parametrize("length", [8 * 37 + 1, 8 * 38])
def test_an_epoch_reads_each_window_once_and_the_next_cuts_elsewhere(length):
    batches, epochs = batches_of(np.arange(length, dtype="<u2"), batch_size=37), []
    for epoch in range(20):
        starts = batches.get(epoch, 0)[0][:, 0]
        in_order = starts.sort().values
        assert in_order.unique().numel() == 37
        # Neighbours, but for one that was moved past the end and so to the beginning.
        assert (in_order.diff() == 8).sum() >= 35
        epochs.append((in_order[-1].item() % 8, tuple(starts.tolist())))
    assert len({cut for cut, _ in epochs}) >= 5
    assert len({order for _, order in epochs}) == 20


def test_a_batch_depends_on_seed_step_and_micro_step_alone():
    ids = np.arange(250, dtype=np.uint8)
    one, same, other = (
        batches_of(ids, seed=seed, gradient_accumulation_steps=3) for seed in (1, 1, 2)
    )
    asked = [(step, micro) for step in range(6) for micro in range(3)]
    found = {place: one.get(*place)[0] for place in asked}
    torch.manual_seed(9)
    for place in reversed(asked):
        assert torch.equal(same.get(*place)[0], found[place])
        assert not torch.equal(other.get(*place)[0], found[place])
    assert len({tuple(batch.flatten().tolist()) for batch in found.values()}) == len(asked)


# --- reports --------------------------------------------------------------------------------


def test_a_report_says_what_there_is_to_say(corpus, monkeypatch):
    monkeypatch.setattr("sancho.training.SAMPLE_LENGTH", 30)
    options = {"max_iters": 11, "eval_interval": 5, "gradient_accumulation_steps": 2}
    states = [start(corpus, train_config(log_interval=n, **options)) for n in (1, 4)]
    for state in states:
        randomise(state.model)
    every = run(states[0], corpus)
    reports = [report for report in fit(state, corpus, CPU) if report.evaluated is None]
    assert [report.step for report in reports] == list(range(1, 12))
    assert [r.step for r in reports if r.train_loss is not None] == [4, 5, 8, 10, 11]
    assert [r.step for r in reports if r.val_loss is not None] == [5, 10, 11]
    for begin, end in ((0, 4), (4, 5), (5, 8), (8, 10), (10, 11)):
        mean = sum(figure[3] for figure in every[begin:end]) / (end - begin)
        assert reports[end - 1].train_loss == pytest.approx(mean, rel=1e-12)
    for report in reports:
        assert report.tokens == report.step * TOKENS_PER_STEP * 2
        assert (report.val_bpc is None) == (report.val_loss is None) == (report.sample is None)
        assert report.val_loss is not None or not report.is_best
        assert report.tokens_per_second > 0
    last, tokenizer = reports[-1], corpus.tokenizer
    assert last.val_bpc == pytest.approx(last.val_loss / math.log(2))
    written = {}
    for name, first in (("val", corpus.val[:1]), ("train", corpus.train[:1])):
        options = {"max_new_tokens": 30, "seed": 1605}
        (written[name],) = continue_texts(state.model, tokenizer, first, **options)
    assert last.sample == written["val"] != written["train"]


def test_the_learning_rate_of_a_step_is_told_and_moves_the_weights(corpus):
    rates = {"learning_rate": 0.5, "ngram_learning_rate": 0.5, "optimizer": "adamw"}
    config = train_config(max_iters=10, warmup_iters=3, decay_fraction=0.4, **rates)
    state = start(corpus, config)
    expected = iter([0.125, 0.25, 0.375, 0.5, 0.5, 0.5, 0.5, 0.375, 0.25, 0.125])
    for report in fit(state, corpus, CPU):
        if report.evaluated is not None:
            continue
        assert report.lr == pytest.approx(next(expected))
        assert {optimizer.lr for optimizer in state.optimizers} == {report.lr}


def test_seconds_hold_evaluations_and_speed_does_not(corpus, monkeypatch):
    """On a clock that goes on by a second for each step, and by 100 for each evaluation."""
    clock = [0.0]

    def step(batches, *place, get=Batches.get):
        clock[0] += 1
        return get(batches, *place)

    def slow(*args):
        for _ in range(2):
            clock[0] += 50
            yield np.ones(1)

    monkeypatch.setattr("sancho.training.time.perf_counter", lambda: clock[0])
    monkeypatch.setattr("sancho.training.losses_in_groups", slow)
    monkeypatch.setattr(Batches, "get", step)
    state = start(corpus, train_config(max_iters=12, eval_interval=3))
    reports = []
    for report in fit(state, corpus, CPU):
        clock[0] += 9_000  # what is done between two reports is no time of training
        reports.append(report)
        if report.step == 7:
            break
    saved = state.to_checkpoint(corpus, with_optimizer=True)
    reports += fit(TrainingState.restore(saved, saved.train, CPU), corpus, CPU)
    told = [report for report in reports if report.evaluated is None]
    assert [report.seconds for report in told] == [n + n // 3 * 100 for n in range(1, 13)]
    assert {report.tokens_per_second for report in told} == {TOKENS_PER_STEP}
