import functools
import io
import itertools
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import CodeType

import numpy as np
import pytest
import torch
from conftest import randomise

from sancho import checkpoint
from sancho.checkpoint import Progress
from sancho.config import ModelConfig, SampleConfig, TrainConfig, TrainOptions
from sancho.corpus import Corpus, prepare
from sancho.device import Device
from sancho.errors import UserError
from sancho.evaluate import bits_per_character, evaluate
from sancho.generate import continue_text
from sancho.model import cross_entropy
from sancho.optim import (
    AdamW,
    RowAdagrad,
    learning_rate_factor,
    optimizer_arrays,
    set_learning_rate,
)
from sancho.presets import PRESETS
from sancho.run_folder import RunFolder
from sancho.tokenizer import CharTokenizer
from sancho.training import Batches, NonFiniteLoss, Report, TrainingState, fit

pytestmark = pytest.mark.usefixtures("one_thread")
CPU = Device(torch.device("cpu"), torch.float32)
CPU_BFLOAT16 = Device(torch.device("cpu"), torch.bfloat16)
SAMPLE_TEXT = Path(__file__).resolve().parent.parent / "data" / "apocrifo.txt"


def model_config(corpus: Corpus, **options) -> ModelConfig:
    small = {"block_size": 8, "n_layer": 2, "n_head": 2, "n_embd": 16}
    small |= {"ngram_size": 5, "ngram_rows": 64}
    return ModelConfig(vocab_size=corpus.tokenizer.vocab_size, **(small | options))


def train_config(**options) -> TrainConfig:
    return TrainConfig(**({"max_iters": 12, "batch_size": 4, "warmup_iters": 3} | options))


def start(corpus: Corpus, config: TrainConfig, **model_options) -> TrainingState:
    return TrainingState.start(model_config(corpus, **model_options), config, CPU)


def corpus_of(text: str) -> Corpus:
    tokenizer = CharTokenizer.from_text(text)
    ids, n_val = tokenizer.encode(text), int(len(text) * 0.1)
    cut = len(ids) - n_val
    return Corpus("hand-made", tokenizer, ids[:cut], ids[cut:], "0" * 64)


def figures(report: Report) -> tuple:
    """Return all of a report that is no time."""
    return (
        report.step,
        report.tokens,
        report.train_loss,
        report.val_loss,
        report.val_bpc,
        report.lr,
        report.is_best,
    )


def bits(arrays: dict[str, np.ndarray]) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in arrays.items()}


def bits_of(state: TrainingState) -> dict[str, bytes]:
    optimizer = bits(optimizer_arrays(state.objective.named_trained(), state.optimizers))
    parameters = dict(state.model.named_parameters())
    assert {name.rpartition(".")[0] for name in optimizer} == parameters.keys()
    return bits(state.model.arrays()) | {f"optimizer.{k}": v for k, v in optimizer.items()}


def run(
    state: TrainingState, corpus: Corpus, steps: int | None = None, device: Device = CPU, **options
) -> list[tuple]:
    """Train to the end, or until `steps` steps are done; return the figures."""
    seen = []
    for report in fit(state, corpus, device, **options):
        seen.append(figures(report))
        if report.step == steps:
            break
    return seen


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Corpus:
    text = SAMPLE_TEXT.read_text(encoding="utf-8")[:4000]
    folder = tmp_path_factory.mktemp("data") / "tiny"
    return prepare([("tiny", io.BytesIO(text.encode()))], folder, "a test")


# --- one seed, one run ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dropout", "ngram_dropout"])
def test_the_same_seed_gives_the_same_bytes(corpus, kind):
    states = []
    for noise in (1, 2):
        torch.manual_seed(noise)  # whatever torch has drawn before must not matter
        state = start(corpus, train_config(), **{kind: 0.2})
        states.append((run(state, corpus), bits_of(state)))
    assert states[0] == states[1]


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_another_seed_gives_another_model(corpus, dropout):
    found = []
    for seed in (1, 2):
        state = start(corpus, train_config(seed=seed), dropout=dropout)
        fresh = bits(state.model.arrays())
        run(state, corpus)
        found.append((fresh["token_embedding.weight"], bits_of(state)["head.weight"]))
    assert found[0][0] != found[1][0]
    assert found[0][1] != found[1][1]


def test_every_step_has_its_own_batch_and_dropout(corpus):
    """The seed of a step decides batches and dropout: each changes the losses alone."""
    losses = {}
    for seed, dropout in ((1, 0.0), (1, 0.3), (2, 0.0)):
        state = start(corpus, train_config(log_interval=1), dropout=dropout)
        state.config = replace(state.config, seed=seed)
        losses[seed, dropout] = [figure[2] for figure in run(state, corpus)]
    assert losses[1, 0.0] != losses[1, 0.3]
    assert losses[1, 0.0] != losses[2, 0.0]


def test_training_leaves_torchs_random_stream_alone(corpus):
    before = torch.get_rng_state()
    run(start(corpus, train_config(), dropout=0.2), corpus)
    assert torch.equal(before, torch.get_rng_state())


# --- a run that is resumed is the same run --------------------------------------------------


def resume(path: Path) -> TrainingState:
    saved = checkpoint.load(path)
    return TrainingState.restore(saved, saved.train, CPU)


def interrupted_options(optimizer: str) -> TrainConfig:
    return train_config(
        optimizer=optimizer,
        gradient_accumulation_steps=2,
        eval_interval=5,
        log_interval=3,
        weight_decay=0.1,
    )


def start_preset(corpus: Corpus, preset: str, dropout: float = 0.2) -> TrainingState:
    """Return a new run like that of a preset, but small, and with dropout and parts of a step."""
    shape = {"block_size": 8, "n_layer": 2, "n_head": 2, "n_embd": 16, "ngram_rows": 64}
    shape |= {"vocab_size": corpus.tokenizer.vocab_size, "tie_embeddings": preset == "base"}
    model = replace(PRESETS[preset].model, dropout=dropout, ngram_dropout=dropout, **shape)
    return TrainingState.start(model, interrupted_options(PRESETS[preset].train.optimizer), CPU)


@pytest.mark.parametrize(
    "preset", ["mini", "classic", pytest.param("base", marks=pytest.mark.slow)]
)
def test_resuming_at_every_step_equals_no_interruption(tmp_path, corpus, preset):
    whole = start_preset(corpus, preset)
    expected = run(whole, corpus)
    assert len(expected) == 12

    # Saving at every step must change nothing either.
    state = start_preset(corpus, preset)
    checkpoint.save(tmp_path / "0", state.to_checkpoint(corpus, with_optimizer=True))
    seen = []
    for report in fit(state, corpus, CPU):
        seen.append(figures(report))
        saved = state.to_checkpoint(corpus, with_optimizer=True)
        checkpoint.save(tmp_path / str(report.step), saved)
    assert seen == expected
    assert bits_of(state) == bits_of(whole)

    for step in range(12):
        state = resume(tmp_path / str(step))
        assert run(state, corpus) == expected[step:], f"resumed at {step}"
        assert bits_of(state) == bits_of(whole), f"resumed at {step}"


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_resuming_again_and_again(tmp_path, corpus, optimizer):
    whole = start(corpus, interrupted_options(optimizer), dropout=0.2)
    expected = run(whole, corpus)
    state, seen = start(corpus, interrupted_options(optimizer), dropout=0.2), []
    for step in (1, 4, 5, 9, None):
        seen += run(state, corpus, step)
        checkpoint.save(tmp_path / "x", state.to_checkpoint(corpus, with_optimizer=True))
        state = resume(tmp_path / "x")
    assert seen == expected
    assert bits_of(state) == bits_of(whole)
    assert run(state, corpus) == []


def test_one_checkpoint_can_be_resumed_twice(tmp_path, corpus):
    """Going on with it must not change the checkpoint in memory."""
    state = start(corpus, interrupted_options("muon"), dropout=0.2)
    expected = run(state, corpus, 4)
    checkpoint.save(tmp_path / "x", state.to_checkpoint(corpus, with_optimizer=True))
    saved, figures_of = checkpoint.load(tmp_path / "x"), []
    progress = saved.progress.recent_losses.copy()
    for _ in range(2):
        figures_of.append(run(TrainingState.restore(saved, saved.train, CPU), corpus))
    assert len(expected + figures_of[0]) == 12
    assert figures_of[0] == figures_of[1]
    assert saved.progress.recent_losses == progress


def test_the_progress_in_a_checkpoint_does_not_move_on(corpus):
    state = start(corpus, train_config(log_interval=100), dropout=0.0)
    run(state, corpus, 2)
    saved = state.to_checkpoint(corpus, with_optimizer=True)
    before = (saved.progress.step, list(saved.progress.recent_losses))
    run(state, corpus, 5)
    assert (saved.progress.step, saved.progress.recent_losses) == before
    assert before[0] == 2 and len(before[1]) == 2


def test_the_seconds_of_a_resumed_run_go_on(tmp_path, corpus, monkeypatch):
    state = start(corpus, train_config())
    run(state, corpus, 3)
    state.progress.seconds = 1000.0
    checkpoint.save(tmp_path / "x", state.to_checkpoint(corpus, with_optimizer=True))
    clock = itertools.count(77_000.0)  # a second passes each time that somebody looks at it
    monkeypatch.setattr("sancho.training.time.perf_counter", lambda: next(clock))
    report = next(fit(resume(tmp_path / "x"), corpus, CPU))
    assert 1001 <= report.seconds <= 1003
    assert report.seconds == int(report.seconds)
    # What was read before does not count for the speed.
    assert 8 * 4 / 3 <= report.tokens_per_second <= 8 * 4


def test_going_on_for_longer(tmp_path, corpus):
    state = start(corpus, train_config(max_iters=4))
    run(state, corpus)
    checkpoint.save(tmp_path / "x", state.to_checkpoint(corpus, with_optimizer=True))
    saved = checkpoint.load(tmp_path / "x")
    state = TrainingState.restore(saved, replace(saved.train, max_iters=6), CPU)
    assert [figure[0] for figure in run(state, corpus)] == [5, 6]


def test_only_with_the_optimizer_a_checkpoint_has_its_tensors(corpus):
    state = start(corpus, train_config())
    run(state, corpus, 1)
    assert not state.to_checkpoint(corpus, with_optimizer=False).optimizer
    names = state.to_checkpoint(corpus, with_optimizer=True).optimizer
    parameters = dict(state.model.named_parameters())
    assert {name.rpartition(".")[0] for name in names} == parameters.keys()


def test_starting_from_the_weights_of_another_run(corpus):
    source = start(corpus, train_config())
    run(source, corpus, 2)
    before = bits(source.model.arrays())
    saved = source.to_checkpoint(corpus, with_optimizer=False)
    states = [TrainingState.start_from(saved, train_config(seed=seed), CPU) for seed in (5, 5, 6)]
    for state in states:
        assert bits(state.model.arrays()) == before
        assert state.progress == Progress()
        assert not optimizer_arrays(state.objective.named_trained(), state.optimizers)
    figures_of = [run(state, corpus) for state in states]
    assert figures_of[0] == figures_of[1] != figures_of[2]
    assert bits_of(states[0]) == bits_of(states[1])
    # The weights were copies, though those in the checkpoint are those of the source.
    assert bits(source.model.arrays()) == bits(saved.weights) == before
    assert bits(states[0].model.arrays()) != before


@pytest.mark.parametrize("begin", ["restore", "start_from"])
def test_dropout_may_be_another_one_when_a_run_goes_on(corpus, begin):
    source = start(corpus, train_config(log_interval=1), dropout=0.0)
    run(source, corpus, 2)
    saved, losses = source.to_checkpoint(corpus, with_optimizer=True), []
    for changes in ({}, {"dropout": 0.5}, {"ngram_dropout": 0.5}):
        other = replace(saved, model=replace(saved.model, **changes))
        state = getattr(TrainingState, begin)(other, saved.train, CPU)
        assert state.model.config == other.model
        losses.append(run(state, corpus, state.progress.step + 1)[0][2])
    assert len(set(losses)) == 3


# --- a loop that is interrupted, as a notebook's kernel is ----------------------------------


class Interruption:
    """Raises KeyboardInterrupt at one place of one step, once."""

    def __init__(self, state: TrainingState, step: int) -> None:
        self.state, self.step, self.happened = state, step, False

    def __call__(self, *_) -> None:
        if self.state.progress.step == self.step and not self.happened:
            self.happened = True
            raise KeyboardInterrupt


def interrupt_in(place: str, state: TrainingState, monkeypatch) -> Interruption:
    """Let the fifth step be interrupted at a place, or the evaluation after it."""
    interruption = Interruption(state, 5 if place == "evaluation" else 4)

    def only_if(condition) -> Callable:
        return lambda *args: interruption() if condition() else None

    get, parts = Batches.get, []

    def note_part(batches, step, micro_step):
        parts.append(micro_step)
        return get(batches, step, micro_step)

    monkeypatch.setattr(Batches, "get", note_part)
    block, head = state.model.blocks[1], state.model.head.weight
    if place == "evaluation":
        block.register_forward_hook(only_if(lambda: not block.training))
    elif place.startswith("forward"):
        block.register_forward_hook(only_if(lambda: parts[-1] == int(place[-1])))
    elif place.startswith("backward"):
        head.register_hook(only_if(lambda: parts[-1] == int(place[-1])))
    elif place == "optimizers":
        last = state.optimizers[-1]
        monkeypatch.setattr(last, "step", lambda step=last.step: interruption() or step())
    return interruption


def until_interrupted(state: TrainingState, corpus: Corpus) -> list[tuple]:
    """Train until Ctrl+C comes; return the figures."""
    seen = []
    with pytest.raises(KeyboardInterrupt):
        for report in fit(state, corpus, CPU):
            seen.append(figures(report))
    return seen


@pytest.mark.parametrize(
    ("preset", "place"),
    [
        ("mini", "forward 0"),
        ("classic", "forward 1"),
        ("base", "backward 0"),
        ("mini", "backward 1"),
        ("classic", "evaluation"),
    ],
)
def test_what_is_interrupted_before_the_weights_move_costs_nothing(
    tmp_path, corpus, monkeypatch, preset, place
):
    whole = start_preset(corpus, preset)
    expected = run(whole, corpus)
    state = start_preset(corpus, preset)
    interruption = interrupt_in(place, state, monkeypatch)
    seen = until_interrupted(state, corpus)
    assert interruption.happened
    assert seen == expected[:4]
    assert all(module.training for module in state.model.modules())
    done = 5 if place == "evaluation" else 4
    assert (state.progress.step, state.progress.tokens) == (done, done * 8 * 4 * 2)
    assert len(state.progress.recent_losses) == done - 3  # the third step told the first three

    checkpoint.save(tmp_path / "x", state.to_checkpoint(corpus, with_optimizer=True))
    for again in (state, resume(tmp_path / "x")):
        rest = run(again, corpus)
        assert bits_of(again) == bits_of(whole)
        if place != "evaluation":
            assert rest == expected[4:]


def test_an_interruption_between_two_optimizers_leaves_a_run_that_goes_on(
    tmp_path, corpus, monkeypatch
):
    state = start_preset(corpus, "mini")
    assert len(state.optimizers) == 3
    interruption = interrupt_in("optimizers", state, monkeypatch)
    seen = until_interrupted(state, corpus)
    assert interruption.happened
    assert (state.progress.step, len(seen), len(state.progress.recent_losses)) == (4, 4, 1)
    checkpoint.save(tmp_path / "x", state.to_checkpoint(corpus, with_optimizer=True))
    again = resume(tmp_path / "x")
    rest = run(again, corpus)
    assert rest == run(state, corpus)
    assert [figure[0] for figure in rest] == list(range(5, 13))
    assert bits_of(again) == bits_of(state)


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
swallowed = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def interrupted_anywhere(
    tmp_path: Path, corpus: Corpus, numbers: Iterable[int], function: str | None = None
) -> int:
    """Interrupt a run at each of these calls, as long as there are so many; return how many.

    Wherever it was, the run can be saved and goes on; and if nothing had moved, to the same bits.
    """

    def begin() -> TrainingState:
        return start(corpus, config, n_layer=1, dropout=0.2)

    def everything(state: TrainingState) -> dict[str, bytes]:
        return bits(
            state.model.arrays()
            | optimizer_arrays(state.objective.named_trained(), state.optimizers)
        )

    config = train_config(
        max_iters=3, gradient_accumulation_steps=2, eval_interval=2, log_interval=2
    )
    whole = begin()
    after = {0: everything(whole)} | {r.step: everything(whole) for r in fit(whole, corpus, CPU)}
    total, bit_for_bit = 0, 0
    for number in numbers:
        state = begin()
        reports = fit(state, corpus, CPU)
        told = next(reports).step
        try:
            with InterruptedCall(number, function) as interruption:
                for report in reports:
                    told = report.step
        except KeyboardInterrupt:
            total += 1
        else:
            if interruption.left > 0:
                break
        progress, step = state.progress, state.progress.step
        assert told <= step <= told + 1, number
        assert progress.tokens == step * 8 * 4 * 2, number
        # The second step and the last one tell the losses, if they come so far.
        losses = {1: {1}, 2: {0, 2}, 3: {0, 1}}[step]
        assert len(progress.recent_losses) in losses, number
        modes = [module.training for module in state.model.modules()]
        assert modes[0] or not any(modes), number
        untouched = everything(state) == after[step]
        checkpoint.save(tmp_path / "x", state.to_checkpoint(corpus, with_optimizer=True))
        for again in (state, resume(tmp_path / "x")):
            reports = list(fit(again, corpus, CPU))
            assert [r.step for r in reports] == list(range(step + 1, 4)), number
            assert all(p.isfinite().all() for p in again.model.parameters()), number
            if untouched:
                assert everything(again) == after[3], number
        bit_for_bit += untouched
    assert bit_for_bit > total / 2
    return total


@swallowed
def test_ctrl_c_at_some_calls_leaves_a_run_that_goes_on(tmp_path, corpus):
    assert interrupted_anywhere(tmp_path, corpus, range(5, 1_000_000, 450)) >= 6


@swallowed
def test_ctrl_c_at_every_call_of_the_loop_leaves_a_run_that_goes_on(tmp_path, corpus):
    """Between a step and what is noted of it nothing may be interrupted."""
    assert 20 < interrupted_anywhere(tmp_path, corpus, range(1, 1_000_000), "_fit") < 100


@swallowed
@pytest.mark.slow
def test_ctrl_c_at_a_thousand_calls_leaves_a_run_that_goes_on(tmp_path, corpus):
    assert interrupted_anywhere(tmp_path, corpus, range(1, 1_000_000, 3)) > 700


# --- watching changes nothing ---------------------------------------------------------------


def test_evaluating_more_often_and_sampling_change_nothing(corpus):
    quiet = start(corpus, train_config(eval_interval=100, log_interval=100), dropout=0.2)
    run(quiet, corpus)
    watched = start(corpus, train_config(eval_interval=1, log_interval=1), dropout=0.2)
    tokenizer = corpus.tokenizer
    prompt = tokenizer.encode(tokenizer.characters[:3])
    for report in fit(watched, corpus, CPU):
        pieces = continue_text(
            watched.model, tokenizer, prompt, SampleConfig(), max_new_tokens=5, seed=report.step
        )
        next(pieces)  # and the rest of it is never asked for
        evaluate(watched.model, corpus.val, batch_size=3)
        torch.rand(3)
        np.random.rand(3)
    assert bits_of(watched) == bits_of(quiet)
    assert watched.progress.val_loss == quiet.progress.val_loss


def test_logging_changes_only_what_is_told(corpus):
    every = run(start(corpus, train_config(log_interval=1)), corpus)
    some = run(start(corpus, train_config(log_interval=4)), corpus)
    losses = [figure[2] for figure in every]
    for figure in some:
        step = figure[0]
        if step % 4:
            assert figure[2] is None
        else:
            assert figure[2] == pytest.approx(sum(losses[step - 4 : step]) / 4, rel=1e-12)
    assert some[-1][3] == every[-1][3]


# --- what a step does -----------------------------------------------------------------------


def test_accumulated_micro_batches_equal_one_batch(corpus):
    config = train_config(gradient_accumulation_steps=2, grad_clip=0, log_interval=1)
    state, twin = (start(corpus, config, ngram_dropout=0) for _ in range(2))
    randomise(state.model)
    randomise(twin.model)
    found = {}
    for name, p in state.model.named_parameters():
        p.register_post_accumulate_grad_hook(
            lambda p, name=name: found.update({name: p.grad.clone().to_dense()})
        )
    report = next(fit(state, corpus, CPU))

    batches = Batches(corpus.train, 8, config, CPU.where)
    parts = [batches.get(0, micro_step) for micro_step in (0, 1)]
    assert not torch.equal(parts[0][0], parts[1][0])
    inputs, targets = (torch.cat(pair) for pair in zip(*parts, strict=True))
    assert inputs.shape == (8, 8)
    loss = cross_entropy(twin.model(inputs), targets)
    loss.backward()
    assert report.train_loss == pytest.approx(loss.item(), abs=1e-6)
    assert twin.model.ngram_embedding.weight.grad.is_sparse
    for name, p in twin.model.named_parameters():
        torch.testing.assert_close(found[name], p.grad.to_dense(), atol=1e-6, rtol=1e-5)
        assert found[name].abs().max() > 1e-5

    set_learning_rate(twin.optimizers, learning_rate_factor(0, config))
    twin.optimizers[-1].step()
    ours, theirs = (each.model.ngram_embedding.weight for each in (state, twin))
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)


def test_every_weight_moves_and_no_gradient_stays(corpus):
    state = start(corpus, train_config(), bias=True, norm="layernorm", position="learned")
    randomise(state.model)
    before = {name: p.detach().clone() for name, p in state.model.named_parameters()}
    next(fit(state, corpus, CPU))
    for name, p in state.model.named_parameters():
        assert not torch.equal(p, before[name]), name
        assert p.grad is None, name


def multiply_gradient(module: torch.nn.Module, factor: float) -> None:
    """From now on, give `factor` times the gradient to all that a module computes its output of."""

    def hook(module, args, output):
        output.register_hook(lambda gradient: factor * gradient)

    module.register_forward_hook(hook)


@pytest.mark.parametrize("limit", [0.01, 0.5])
def test_the_gradient_is_clipped(corpus, monkeypatch, limit):
    norms, step = [], AdamW.step

    def spy(optimizer, *args, **kwargs):
        grads = [p.grad.flatten() for g in optimizer.param_groups for p in g["params"]]
        norms.append(torch.cat(grads).norm().item())
        return step(optimizer, *args, **kwargs)

    monkeypatch.setattr(AdamW, "step", spy)
    for clip in (limit, 0):
        state = start(corpus, train_config(optimizer="adamw", grad_clip=clip))
        randomise(state.model)
        next(fit(state, corpus, CPU))
    assert norms[0] == pytest.approx(limit, rel=1e-3)
    assert norms[1] > 2 * limit


def test_the_table_is_not_clipped_and_does_not_count(corpus, monkeypatch):
    """Only the dense gradients make the norm, and only they are scaled by it."""
    dense, table = [], []

    def spy(kind, note):
        step = kind.step

        def noted(optimizer, *args, **kwargs):
            note.append([p.grad.to_dense() + 0 for p in optimizer.param_groups[0]["params"]])
            return step(optimizer, *args, **kwargs)

        monkeypatch.setattr(kind, "step", noted)

    spy(AdamW, dense)
    spy(RowAdagrad, table)
    for clip, scale in ((0, 1.0), (0.5, 1.0), (0.5, 1000.0)):
        state = start(corpus, train_config(optimizer="adamw", grad_clip=clip))
        randomise(state.model)
        multiply_gradient(state.model.ngram_embedding, scale)
        next(fit(state, corpus, CPU))
    assert torch.equal(table[1][0], table[0][0])
    assert table[0][0].norm() > 0.5
    torch.testing.assert_close(table[2][0], 1000 * table[0][0])
    for free, clipped, beside_a_large_table in zip(*dense, strict=True):
        assert torch.equal(beside_a_large_table, clipped)
        assert clipped.norm() < 0.9 * free.norm()


def test_dropout_is_on_in_training_and_off_in_evaluation(corpus):
    with_dropout = start(corpus, train_config(log_interval=1, eval_interval=1), dropout=0.9)
    without = start(corpus, train_config(log_interval=1, eval_interval=1), dropout=0.0)
    for state in (with_dropout, without):
        randomise(state.model)
    reports = [next(fit(state, corpus, CPU)) for state in (with_dropout, without)]
    assert reports[0].train_loss != reports[1].train_loss
    assert reports[0].val_loss == evaluate(with_dropout.model.eval(), corpus.val)


@pytest.mark.parametrize("device", [CPU, CPU_BFLOAT16], ids=str)
def test_the_loss_falls_on_a_text_that_is_easy_to_learn(device):
    corpus = corpus_of("En un lugar de la Mancha, " * 60)
    state = start(corpus, train_config(max_iters=120, log_interval=10))
    reports = list(fit(state, corpus, device))
    told = [report.train_loss for report in reports if report.train_loss is not None]
    assert told[0] > 1.5
    assert told[-1] < 0.6
    assert reports[-1].val_loss < 0.6


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_the_first_loss_is_that_of_a_guess(corpus, optimizer):
    state = start(corpus, train_config(optimizer=optimizer, log_interval=1))
    report = next(fit(state, corpus, CPU))
    assert report.train_loss == pytest.approx(math.log(corpus.tokenizer.vocab_size), abs=1e-5)


# --- bfloat16 -------------------------------------------------------------------------------


def losses_of(seen: list[tuple]) -> list[float]:
    """Return the training and validation losses that were told."""
    return [loss for figure in seen for loss in figure[2:4] if loss is not None]


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_bfloat16_gives_nearly_the_losses_of_float32(corpus, preset, dropout):
    found = []
    for device in (CPU, CPU_BFLOAT16):
        state, kinds = start_preset(corpus, preset, dropout), set()
        state.model.head.register_forward_hook(lambda *args, kinds=kinds: kinds.add(args[2].dtype))
        found.append(losses_of(run(state, corpus, device=device)))
        assert kinds == {device.dtype}  # in training and in evaluation
        assert {p.dtype for p in state.model.parameters()} == {torch.float32}
        assert {array.dtype for array in arrays_of(state)} == {np.dtype("f4")}
    exact, rounded = found
    assert all(map(math.isfinite, rounded))
    assert rounded == pytest.approx(exact, abs=0.01)  # of losses between 3 and 4
    assert rounded != exact


def arrays_of(state: TrainingState) -> Iterable[np.ndarray]:
    return optimizer_arrays(state.objective.named_trained(), state.optimizers).values()


@pytest.mark.parametrize("preset", ["mini", "classic"])
def test_a_run_in_bfloat16_that_is_resumed_is_the_same_run(tmp_path, corpus, preset):
    whole = start_preset(corpus, preset)
    expected = run(whole, corpus, device=CPU_BFLOAT16)
    state = start_preset(corpus, preset)
    seen = run(state, corpus, 7, device=CPU_BFLOAT16)
    checkpoint.save(tmp_path / "x", state.to_checkpoint(corpus, with_optimizer=True))
    state = resume(tmp_path / "x")
    assert seen + run(state, corpus, device=CPU_BFLOAT16) == expected
    assert bits_of(state) == bits_of(whole)


# --- torch.compile --------------------------------------------------------------------------


COMPILE = torch.compile


@pytest.fixture
def compile_with(monkeypatch) -> Iterator[Callable]:
    """Let torch.compile hand its graphs to a function instead of a compiler."""

    def use(backend: Callable) -> None:
        monkeypatch.setattr(torch, "compile", functools.partial(COMPILE, backend=backend))

    torch.compiler.reset()
    yield use
    torch.compiler.reset()


@pytest.mark.parametrize("device", [CPU, CPU_BFLOAT16], ids=str)
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_a_compiled_run_is_the_same_run(tmp_path, corpus, compile_with, recwarn, preset, device):
    whole = start_preset(corpus, preset)
    expected = run(whole, corpus, device=device)
    graphs = []
    compile_with(lambda graph, inputs: graphs.append(graph) or graph)
    state = start_preset(corpus, preset)
    seen = run(state, corpus, 1, device=device, compile=True)
    assert graphs
    begun = len(graphs)
    seen += run(state, corpus, 7, device=device, compile=True)
    # Neither the steps nor the evaluation after the fifth have it compiled again.
    assert len(graphs) == begun
    checkpoint.save(tmp_path / "x", state.to_checkpoint(corpus, with_optimizer=True))
    state = resume(tmp_path / "x")
    assert seen + run(state, corpus, device=device, compile=True) == expected
    assert bits_of(state) == bits_of(whole)
    assert [str(w.message) for w in recwarn if "torch.compile does not" in str(w.message)] == []


def refuse_to_compile(graph, inputs) -> Callable:
    raise OSError("there is no compiler here")


def compile_without_a_way_back(graph, inputs) -> Callable:
    """Compile to something whose gradient can't be computed."""

    def forward(*args):
        outputs = graph(*args)
        outputs[0].register_hook(no_gradient)
        return outputs

    return forward


def no_gradient(gradient):
    raise OSError("there is no compiler here")


@pytest.mark.parametrize("backend", [refuse_to_compile, compile_without_a_way_back])
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_a_compiler_that_fails_is_done_without(corpus, compile_with, preset, backend):
    whole = start_preset(corpus, preset)
    expected = run(whole, corpus)
    compile_with(backend)
    state = start_preset(corpus, preset)
    with pytest.warns(UserWarning, match="does not work here, going on without: ") as caught:
        assert run(state, corpus, compile=True) == expected
    assert bits_of(state) == bits_of(whole)
    (message,) = (str(w.message) for w in caught if "going on without" in str(w.message))
    assert "\n" not in message
    assert "there is no compiler here" in message


def test_a_torch_that_cannot_compile_at_all_is_done_without(corpus, monkeypatch):
    """As where PyTorch does not support the version of Python yet."""

    def refuse(model):
        raise RuntimeError("torch.compile is not supported on Python 3.99+")

    expected = run(start_preset(corpus, "mini"), corpus)
    monkeypatch.setattr(torch, "compile", refuse)
    with pytest.warns(UserWarning, match=r"going on without: torch\.compile is not supported on"):
        assert run(start_preset(corpus, "mini"), corpus, compile=True) == expected


def test_ctrl_c_while_it_is_compiled_costs_nothing(corpus, compile_with):
    def interrupted(graph, inputs):
        raise KeyboardInterrupt

    expected = run(start_preset(corpus, "mini"), corpus)
    compile_with(interrupted)
    state = start_preset(corpus, "mini")
    with pytest.raises(KeyboardInterrupt):
        run(state, corpus, compile=True)
    assert state.progress == Progress()
    assert run(state, corpus) == expected


def test_a_run_that_is_done_is_not_compiled(corpus, monkeypatch):
    state = start(corpus, train_config(max_iters=2))
    run(state, corpus)
    monkeypatch.setattr(torch, "compile", lambda model: pytest.fail("for nothing"))
    assert run(state, corpus, compile=True) == []


@pytest.mark.slow
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_a_run_that_is_really_compiled_has_nearly_the_same_losses(corpus, recwarn, preset):
    """Without dropout, which a compiled model draws in its own way."""
    torch.compiler.reset()
    expected = losses_of(run(start_preset(corpus, preset, 0.0), corpus))
    found = losses_of(run(start_preset(corpus, preset, 0.0), corpus, compile=True))
    assert [str(w.message) for w in recwarn if "going on without" in str(w.message)] == []
    assert found == pytest.approx(expected, abs=1e-4)
    torch.compiler.reset()


# --- early stopping -------------------------------------------------------------------------


def worsening() -> Corpus:
    """Return a text whose end is ever less likely, the more is learned of its beginning."""
    return corpus_of("a" * 900 + "b" * 100)


@pytest.mark.parametrize(("patience", "last"), [(1, 4), (3, 8), (0, 12)])
def test_early_stopping(patience, last):
    corpus = worsening()
    state = start(corpus, train_config(eval_interval=2, patience=patience))
    reports, done = [], []
    for report in fit(state, corpus, CPU):
        reports.append(report)
        done.append(state.is_done)
    assert reports[-1].step == last
    assert done == [False] * (last - 1) + [True]
    assert [report.step for report in reports if report.is_best] == [2]
    losses = [report.val_loss for report in reports if report.val_loss is not None]
    assert losses == sorted(losses)
    assert state.progress.best_val_loss == losses[0]
    assert state.progress.val_loss == losses[-1]
    assert state.progress.evaluations_since_best == last // 2 - 1


@pytest.mark.parametrize(
    ("patience", "step", "misses", "is_done"),
    [
        (0, 0, 0, False),
        (0, 11, 0, False),
        (0, 12, 0, True),
        (0, 13, 0, True),  # resumed with fewer steps than were done
        (0, 3, 99, False),  # 0 is endless patience
        (2, 3, 1, False),
        (2, 3, 2, True),
        (2, 3, 3, True),
        (2, 12, 0, True),
    ],
)
def test_a_run_is_done_after_its_steps_or_out_of_patience(corpus, patience, step, misses, is_done):
    state = start(corpus, train_config(patience=patience))
    state.progress.step, state.progress.evaluations_since_best = step, misses
    assert state.is_done is is_done
    assert (run(state, corpus) == []) is is_done


def test_early_stopping_counts_across_a_resumption(tmp_path):
    corpus = worsening()
    state = start(corpus, train_config(eval_interval=2, patience=3))
    run(state, corpus, 5)
    checkpoint.save(tmp_path / "x", state.to_checkpoint(corpus, with_optimizer=True))
    assert run(resume(tmp_path / "x"), corpus)[-1][0] == 8


def test_a_run_that_has_lost_its_patience_does_not_go_on(tmp_path):
    corpus = worsening()
    state = start(corpus, train_config(eval_interval=2, patience=2))
    assert run(state, corpus)[-1][0] == 6
    checkpoint.save(tmp_path / "x", state.to_checkpoint(corpus, with_optimizer=True))
    assert run(resume(tmp_path / "x"), corpus) == []


# --- numbers that are not finite ------------------------------------------------------------


def train_into_a_folder(state: TrainingState, corpus: Corpus, path: Path, spoil=None) -> int:
    """Train as train.py does until it fails; return the number of steps that were reported."""
    folder, done = RunFolder(path), 0
    folder.begin(TrainOptions())
    with pytest.raises(NonFiniteLoss) as caught:
        for report in fit(state, corpus, CPU):
            done = report.step
            if report.val_loss is not None:
                folder.save(state, corpus, is_best=report.is_best)
            if spoil:
                spoil(done)
    message = str(caught.value)
    assert f"at step {done + 1};" in message
    assert "\n" not in message
    assert "--learning_rate" in message
    return done


@pytest.mark.parametrize("step", [1, 2, 5, 7])
@pytest.mark.parametrize("grad_clip", [0.0, 1.0])
def test_a_weight_that_is_not_a_number(tmp_path, corpus, step, grad_clip):
    config = train_config(eval_interval=2, log_interval=10, grad_clip=grad_clip)
    state = start(corpus, config)

    def spoil(done: int) -> None:
        if done == step:
            with torch.no_grad():
                state.model.head.weight[0, 0] = float("nan")

    assert train_into_a_folder(state, corpus, tmp_path, spoil) == step
    if step >= 2:
        for name in ("best", "last"):
            saved = checkpoint.load(tmp_path / f"{name}.safetensors")
            assert saved.progress.step == step // 2 * 2
            assert math.isfinite(saved.progress.val_loss)


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
@pytest.mark.parametrize("grad_clip", [0.0, 1.0])
def test_a_learning_rate_beyond_all_bounds(tmp_path, corpus, optimizer, grad_clip):
    config = train_config(
        learning_rate=1e30, optimizer=optimizer, grad_clip=grad_clip, max_iters=400
    )
    done = train_into_a_folder(start(corpus, config), corpus, tmp_path)
    assert done < 10


@pytest.mark.parametrize("grad_clip", [0.0, 1.0])
def test_a_gradient_that_is_not_finite(corpus, grad_clip):
    """The loss itself is sound, but the step would spoil the weights."""
    state = start(corpus, train_config(grad_clip=grad_clip, eval_interval=100))
    reports = fit(state, corpus, CPU)
    next(reports)
    next(reports)
    state.model.head.weight.register_hook(lambda grad: grad * float("inf"))
    with pytest.raises(NonFiniteLoss, match="at step 3;"):
        next(reports)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_of_the_embeddings_that_is_not_finite(corpus, value):
    """What reaches a row of the table reaches a character too, and that is looked at."""
    state = start(corpus, train_config(eval_interval=100))
    reports = fit(state, corpus, CPU)
    next(reports)
    next(reports)
    multiply_gradient(state.model.dropout, value)
    with pytest.raises(NonFiniteLoss, match="at step 3;"):
        next(reports)


def test_a_validation_loss_that_is_not_finite(corpus):
    state = start(corpus, train_config())
    for value in (float("nan"), float("inf")):
        with pytest.raises(NonFiniteLoss):
            state.take_evaluation(value)
    assert state.progress.best_val_loss is None


def test_a_bad_loss_is_found_before_it_is_saved(corpus):
    """On a GPU losses are looked at only now and then; the step must be right all the same."""
    state = start(corpus, train_config())
    state.progress.step = 7
    bad = [torch.tensor(1.0), torch.tensor(float("nan")), torch.tensor(float("nan"))]
    state.progress.recent_losses = bad
    with pytest.raises(NonFiniteLoss, match="at step 6;"):
        state.to_checkpoint(corpus, with_optimizer=True)


# --- texts that are too short ---------------------------------------------------------------


@pytest.mark.parametrize("block_size", [1, 2, 8, 9, 17, 18, 19, 64, 96, 255, 256])
def test_the_length_that_a_text_must_have(block_size):
    config = train_config(max_iters=1, batch_size=2)
    shape = {"block_size": block_size, "n_layer": 1, "n_head": 1, "n_embd": 2}

    def attempt(length: int) -> None:
        corpus = corpus_of(("ab" * length)[:length])
        list(fit(start(corpus, config, **shape), corpus, CPU))

    with pytest.raises(UserError) as caught:
        # The call itself must raise, before anything is asked of the generator.
        corpus = corpus_of("ab")
        fit(start(corpus, config, **shape), corpus, CPU)
    message = str(caught.value)
    assert f"--block_size {block_size} " in message
    needed = int(message.partition("at least ")[2].partition(":")[0])
    attempt(needed)
    with pytest.raises(UserError, match=f"has {needed - 1} characters"):
        attempt(needed - 1)


def test_the_learned_model_is_left_alone_when_the_text_is_too_short(corpus):
    state = start(corpus, train_config())
    with pytest.raises(UserError, match="hand-made"):
        fit(state, corpus_of("ab" * 4), CPU)
    assert state.progress.step == 0


# --- batches --------------------------------------------------------------------------------


def batches_of(ids: np.ndarray, block_size: int, **options) -> Batches:
    return Batches(ids, block_size, train_config(**options), CPU.where)


def test_windows_are_cut_from_the_text():
    ids = np.arange(200, dtype=np.uint8)
    inputs, targets = batches_of(ids, 8).get(0, 0)
    assert inputs.shape == targets.shape == (4, 8)
    assert inputs.dtype == targets.dtype == torch.int64
    assert torch.equal(inputs + 1, targets)
    assert torch.equal(inputs - inputs[:, :1], torch.arange(8).expand(4, 8))


@pytest.mark.parametrize("length", [9, 10, 12])
def test_every_start_within_range_is_drawn(length):
    batches = batches_of(np.arange(length, dtype=np.uint8), 8, batch_size=64)
    starts = torch.cat([batches.get(step, 0)[0][:, 0] for step in range(4)])
    assert set(starts.tolist()) == set(range(length - 8))


def test_starts_are_spread_evenly():
    ids = np.arange(208, dtype=np.uint8)
    batches = batches_of(ids, 8, batch_size=4000)
    counts = torch.bincount(batches.get(0, 0)[0][:, 0], minlength=200)
    assert len(counts) == 200
    # 20 expected; a sum of squares far from the 199 degrees of freedom is no even draw.
    assert 130 < ((counts - 20) ** 2 / 20).sum() < 280


def test_a_batch_depends_on_seed_step_and_micro_step_alone():
    ids = np.arange(250, dtype=np.uint8)
    one, same, other = batches_of(ids, 8), batches_of(ids, 8), batches_of(ids, 8, seed=2)
    asked = [(step, micro) for step in range(6) for micro in range(3)]
    found = {place: one.get(*place)[0] for place in asked}
    torch.manual_seed(9)
    for place in reversed(asked):
        assert torch.equal(same.get(*place)[0], found[place])
        assert not torch.equal(other.get(*place)[0], found[place])
    assert len({tuple(batch.flatten().tolist()) for batch in found.values()}) == len(asked)


def test_ids_of_two_bytes_come_back_as_they_are(tmp_path):
    ids = np.arange(65536, dtype="<u2")
    ids.tofile(tmp_path / "train.bin")
    mapped = np.memmap(tmp_path / "train.bin", dtype="<u2", mode="c", shape=ids.shape)
    for source in (ids, mapped):
        batches, seen = batches_of(source, 8, batch_size=64), []
        for step in range(5):
            inputs, targets = batches.get(step, 0)
            assert torch.equal(inputs[:, :1] + torch.arange(8), inputs)
            assert torch.equal(inputs + 1, targets)
            seen.append(inputs)
        assert torch.cat(seen).max() > 40000
        assert torch.cat(seen).min() >= 0


def test_a_text_of_more_than_256_characters_is_learned(tmp_path):
    text = "".join(chr(0x4E00 + i % 300) for i in range(3000))
    corpus = prepare([("x", io.BytesIO(text.encode()))], tmp_path / "x", "a test")
    assert corpus.train.dtype == np.dtype("<u2")
    state = start(corpus, train_config(max_iters=80, log_interval=1))
    reports = list(fit(state, corpus, CPU))
    assert reports[0].train_loss == pytest.approx(math.log(301), abs=1e-4)
    assert reports[-1].val_loss < 5


def test_characters_per_step_count_all_micro_batches():
    config = train_config(batch_size=3, gradient_accumulation_steps=5)
    assert config.characters_per_step(ModelConfig(block_size=8)) == 8 * 3 * 5


# --- reports --------------------------------------------------------------------------------


def test_a_report_says_what_there_is_to_say(corpus):
    config = train_config(
        max_iters=11, log_interval=4, eval_interval=5, gradient_accumulation_steps=2
    )
    reports = list(fit(start(corpus, config), corpus, CPU))
    assert [report.step for report in reports] == list(range(1, 12))
    assert [r.step for r in reports if r.train_loss is not None] == [4, 5, 8, 10, 11]
    assert [r.step for r in reports if r.val_loss is not None] == [5, 10, 11]
    for report in reports:
        assert report.tokens == report.step * 8 * 4 * 2
        assert (report.val_bpc is None) == (report.val_loss is None)
        assert report.val_loss is not None or not report.is_best
        assert report.tokens_per_second > 0
    seconds = [report.seconds for report in reports]
    assert seconds == sorted(seconds)
    assert seconds[0] > 0
    last = reports[-1]
    assert last.val_bpc == bits_per_character(last.val_loss) == last.val_loss / math.log(2)


def test_the_train_loss_is_the_mean_since_the_last_one(corpus):
    options = {"max_iters": 11, "eval_interval": 5}
    every = run(start(corpus, train_config(log_interval=1, **options)), corpus)
    some = run(start(corpus, train_config(log_interval=4, **options)), corpus)
    losses = [figure[2] for figure in every]
    for begin, end in ((0, 4), (4, 5), (5, 8), (8, 10), (10, 11)):
        mean = sum(losses[begin:end]) / (end - begin)
        assert some[end - 1][2] == pytest.approx(mean, rel=1e-12)


def test_the_learning_rate_of_each_step(corpus):
    config = train_config(learning_rate=0.5, max_iters=10, warmup_iters=3, decay_fraction=0.4)
    rates = [report.lr for report in fit(start(corpus, config), corpus, CPU)]
    expected = [0.125, 0.25, 0.375, 0.5, 0.5, 0.5, 0.5, 0.375, 0.25, 0.125]
    assert rates == pytest.approx(expected)


def test_the_rate_of_the_step_is_the_one_that_moves_the_weights(corpus):
    rates = {"learning_rate": 1e-3, "ngram_learning_rate": 1e-3}
    config = train_config(optimizer="adamw", max_iters=6, warmup_iters=2, **rates)
    state = start(corpus, config)
    for report in fit(state, corpus, CPU):
        rates = {group["lr"] for o in state.optimizers for group in o.param_groups}
        assert rates == {report.lr}


def test_seconds_hold_evaluations_and_speed_does_not(corpus, monkeypatch):
    """On a clock that goes on by a second for each step, and by 100 for each evaluation."""
    clock, get = [0.0], Batches.get

    def step(batches, *place):
        clock[0] += 1
        return get(batches, *place)

    def slow(model, ids, world):
        clock[0] += 100
        return 1.0

    monkeypatch.setattr("sancho.training.time.perf_counter", lambda: clock[0])
    monkeypatch.setattr("sancho.training.evaluate", slow)
    monkeypatch.setattr(Batches, "get", step)
    reports = list(fit(start(corpus, train_config(eval_interval=3)), corpus, CPU))
    assert [r.seconds for r in reports] == [n + n // 3 * 100 for n in range(1, 13)]
    assert {report.tokens_per_second for report in reports} == {8.0 * 4}


def test_a_loop_that_is_left_can_be_taken_up_again(corpus):
    whole, parts = start(corpus, train_config()), start(corpus, train_config())
    expected = run(whole, corpus)
    seen = run(parts, corpus, 5) + run(parts, corpus)
    assert seen == expected
    assert bits_of(parts) == bits_of(whole)


def test_a_run_that_is_done_does_nothing(corpus):
    state = start(corpus, train_config(max_iters=2))
    run(state, corpus)
    before = bits_of(state)
    assert run(state, corpus) == []
    assert bits_of(state) == before
