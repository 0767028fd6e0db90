"""fit(): the training loop, as a generator of reports."""

import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from sancho.checkpoint import Checkpoint, Progress
from sancho.config import ModelConfig, TrainConfig
from sancho.corpus import Corpus, require_length
from sancho.device import Device, compiled, torch_seed
from sancho.distributed import ALONE, World
from sancho.errors import UserError
from sancho.evaluate import bits_per_character, evaluate
from sancho.generate import generate
from sancho.model import GPT
from sancho.objective import Objective
from sancho.optim import (
    Optimizer,
    learning_rate_factor,
    load_optimizer_arrays,
    make_optimizers,
    optimizer_arrays,
    set_learning_rate,
)
from sancho.streams import Stream, generator

SAMPLE_LENGTH = 80
"""Characters that are written at an evaluation."""


class NonFiniteLoss(UserError):
    """The loss, the gradient or the weights became infinite or not a number."""

    @classmethod
    def at(cls, step: int) -> "NonFiniteLoss":
        """Return the error for a step (from 1)."""
        return cls(
            f"the loss or its gradient is not a finite number at step {step}; nothing after the "
            "last checkpoint was kept. A smaller --learning_rate, --muon_learning_rate or "
            "--ngram_learning_rate, or a longer --warmup_iters, usually helps"
        )


@dataclass(frozen=True, kw_only=True)
class Report:
    """What fit() tells after a step. Losses in nats per character."""

    step: int
    """Steps done."""
    tokens: int
    """Characters trained on."""
    seconds: float
    """Time spent training, evaluations included."""
    lr: float
    """Learning rate of the step, of the first parameter group."""
    tokens_per_second: float
    """Since the last report with a train_loss, without evaluations."""
    train_loss: float | None = None
    """Mean since the last one; only every log_interval steps, at an evaluation and at the end."""
    val_loss: float | None = None
    """Over the whole validation split; only at an evaluation."""
    is_best: bool = False
    """Whether val_loss is the lowest so far."""
    sample: str | None = None
    """What the model writes now after the first character of the validation part; only at an
    evaluation."""

    @property
    def val_bpc(self) -> float | None:
        """val_loss in bits per character."""
        return None if self.val_loss is None else bits_per_character(self.val_loss)


@dataclass
class TrainingState:
    """All that a run changes as it goes: enough, with the corpus, to go on bit for bit."""

    objective: Objective
    optimizers: list[Optimizer]
    config: TrainConfig
    progress: Progress = field(default_factory=Progress)

    @classmethod
    def start(
        cls, model_config: ModelConfig, config: TrainConfig, device: Device
    ) -> "TrainingState":
        """Return the state of a new run, its weights decided by config.seed."""
        with torch_seed(torch.device("cpu"), config.seed, Stream.INITIALISATION):
            return cls._of(GPT(model_config), config, device)

    @classmethod
    def start_from(cls, source: Checkpoint, config: TrainConfig, device: Device) -> "TrainingState":
        """Return the state of a new run that begins with the weights of a checkpoint."""
        return cls._of(source.build_model(), config, device)

    @classmethod
    def restore(
        cls, checkpoint: Checkpoint, config: TrainConfig, device: Device
    ) -> "TrainingState":
        """Return the state that `to_checkpoint` saved, to go on with `config`."""
        state = cls._of(checkpoint.build_model(), config, device)
        arrays = dict(checkpoint.optimizer)
        for j, head in enumerate(state.objective.heads):
            head.data.copy_(torch.from_numpy(arrays.pop(f"look_ahead.{j}.weight")))
        load_optimizer_arrays(state.objective.named_trained(), state.optimizers, arrays)
        state.progress = deepcopy(checkpoint.progress)
        return state

    @classmethod
    def _of(cls, model: GPT, config: TrainConfig, device: Device) -> "TrainingState":
        objective = Objective(model.to(device.where), config.look_ahead)
        return cls(objective, make_optimizers(model, config, objective.heads), config)

    @property
    def model(self) -> GPT:
        """The model that is trained."""
        return self.objective.model

    def to_checkpoint(self, corpus: Corpus, *, with_optimizer: bool) -> Checkpoint:
        """Return what a checkpoint file holds; only with the optimizer can training go on.

        On a CPU its arrays are those of the state: save it, or copy them, before the next step.
        """
        self.settle_losses()
        optimizer: dict[str, np.ndarray] = {}
        if with_optimizer:
            optimizer = optimizer_arrays(self.objective.named_trained(), self.optimizers)
            for j, head in enumerate(self.objective.heads):
                optimizer[f"look_ahead.{j}.weight"] = head.detach().cpu().numpy()
        return Checkpoint(
            model=self.model.config,
            characters=corpus.tokenizer.characters,
            train=self.config,
            progress=replace(self.progress, recent_losses=list(self.progress.recent_losses)),
            corpus_name=corpus.name,
            corpus_sha256=corpus.sha256,
            weights=self.model.arrays(),
            optimizer=optimizer,
        )

    @property
    def is_done(self) -> bool:
        """Whether all steps are done, or config.patience evaluations passed without a better."""
        out_of_patience = 0 < self.config.patience <= self.progress.evaluations_since_best
        return out_of_patience or self.progress.step >= self.config.max_iters

    def settle_losses(self) -> None:
        """Turn the recent losses into floats. Raises NonFiniteLoss naming the step of a bad one."""
        progress = self.progress
        progress.recent_losses = [float(loss) for loss in progress.recent_losses]
        for i, loss in enumerate(progress.recent_losses):
            if not math.isfinite(loss):
                raise NonFiniteLoss.at(progress.step - len(progress.recent_losses) + i + 1)

    def take_evaluation(self, val_loss: float) -> bool:
        """Note a validation loss; return whether it is the best so far."""
        progress = self.progress
        if not math.isfinite(val_loss):
            raise NonFiniteLoss.at(progress.step)
        is_best = progress.best_val_loss is None or val_loss < progress.best_val_loss
        progress.val_loss = val_loss
        progress.best_val_loss = val_loss if is_best else progress.best_val_loss
        progress.evaluations_since_best = 0 if is_best else progress.evaluations_since_best + 1
        return is_best


class Batches:
    """Random windows of a text; which ones depends on the seed, the step and nothing else."""

    def __init__(
        self, ids: np.ndarray, block_size: int, config: TrainConfig, device: torch.device
    ) -> None:
        """Take windows of `ids`, (n,) with n > block_size."""
        self.block_size, self.config, self.device = block_size, config, device
        self.n_starts = len(ids) - block_size
        self.offsets = torch.arange(block_size + 1, device=device)
        # On the CPU the text stays on disk; a GPU holds it in its own memory.
        self.ids = torch.from_numpy(ids if ids.dtype == np.uint8 else ids.view(np.int16))
        self.ids = self.ids.to(device)

    def get(self, step: int, micro_step: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets, each (B, T) int64, of one micro-batch."""
        random = generator(self.config.seed, Stream.BATCHES, step, micro_step)
        starts = torch.from_numpy(random.integers(self.n_starts, size=self.config.batch_size))
        if self.device.type == "cuda":  # from pinned memory, so that nobody waits for the copy
            starts = starts.pin_memory().to(self.device, non_blocking=True)
        windows = self.ids[starts.to(self.device)[:, None] + self.offsets].long()  # (B, T + 1)
        windows &= 0xFFFF  # ids past 32767 come as negative numbers
        return windows[:, :-1], windows[:, 1:]


def fit(
    state: TrainingState,
    corpus: Corpus,
    device: Device,
    *,
    world: World = ALONE,
    compile: bool = False,
) -> Iterator[Report]:
    """Train until state.config.max_iters steps are done, and report after every step.

    Whenever it yields, `state` stands between two steps and may be saved. Most reports say only
    the step; see Report. Stops early if state.config.patience asks for it. All processes of a
    `world` call it and get the same reports, but for the seconds.
    Raises UserError at once where the corpus is too short or the processes can't share the
    micro-steps; later NonFiniteLoss where the loss, the gradient or the weights are not finite any
    more.
    """
    require_length(corpus, state.model.config.block_size)
    world.check(state.config.gradient_accumulation_steps)
    return _fit(state, corpus, device, world, compile)


def _fit(
    state: TrainingState, corpus: Corpus, device: Device, world: World, compile: bool
) -> Iterator[Report]:
    config, progress, objective = state.config, state.progress, state.objective
    batches = Batches(corpus.train, state.model.config.block_size, config, device.where)
    objective.train()
    objective.zero_grad()  # a step that was interrupted has left some
    if compile and not state.is_done:
        objective = compiled(objective, lambda fast: _losses(fast, state, batches, device, 0)[1])
    clock, per_step = _Clock(progress), config.characters_per_step(state.model.config)
    while not state.is_done:
        factor = learning_rate_factor(progress.step, config)
        set_learning_rate(state.optimizers, factor)
        loss = _train_step(objective, state, batches, device, world)
        # Only a call can be interrupted: all three lines are done, or none.
        progress.step += 1
        progress.tokens += per_step
        progress.recent_losses.append(loss)
        yield _report(state, corpus, device, world, clock, factor * config.learning_rate)


def _train_step(
    objective: torch.nn.Module,
    state: TrainingState,
    batches: Batches,
    device: Device,
    world: World,
) -> Tensor:
    """Make one optimizer step; return its loss, (), which is NaN if the gradient is not finite."""
    config, parameters = state.config, list(state.objective.parameters())
    total = torch.zeros((), device=device.where)
    for first in range(0, config.gradient_accumulation_steps, world.size):
        loss, with_look_ahead = _losses(objective, state, batches, device, first + world.rank)
        with world.summed_gradients(parameters):
            with_look_ahead.backward()
        for share in world.all(loss.detach()):
            total += share
    # The rows of a table are left out: their optimizer sets the length of their steps by itself.
    dense = [p for p in parameters if p.grad is None or not p.grad.is_sparse]
    norm = torch.nn.utils.clip_grad_norm_(dense, config.grad_clip or math.inf)
    total += 0 * norm
    for optimizer in state.optimizers:
        optimizer.step()
        optimizer.zero_grad()
    return total


def _losses(
    objective: torch.nn.Module,
    state: TrainingState,
    batches: Batches,
    device: Device,
    micro_step: int,
) -> tuple[Tensor, Tensor]:
    """Return a micro-batch's share in the loss of the next step, (), alone and with look-ahead."""
    step, config = state.progress.step, state.config
    inputs, targets = batches.get(step, micro_step)
    share = state.objective.share_at(step, config.max_iters)
    with device.autocast(), _dropout_stream(state, device, step, micro_step):
        loss, total = objective(inputs, targets, share)
    return loss / config.gradient_accumulation_steps, total / config.gradient_accumulation_steps


def _dropout_stream(state: TrainingState, device: Device, *place: int) -> AbstractContextManager:
    if state.model.config.dropout == state.model.config.ngram_dropout == 0:
        return nullcontext()
    return torch_seed(device.where, state.config.seed, Stream.DROPOUT, *place)


def _report(
    state: TrainingState,
    corpus: Corpus,
    device: Device,
    world: World,
    clock: "_Clock",
    lr: float,
) -> Report:
    """Say what there is to say after a step; evaluate if it is time for that."""
    config, progress = state.config, state.progress
    is_end = progress.step == config.max_iters
    is_evaluation = is_end or progress.step % config.eval_interval == 0
    is_log = is_evaluation or progress.step % config.log_interval == 0
    # Reading a loss from a GPU makes the GPU wait, so there it is done only when it is shown.
    if is_log or device.where.type == "cpu":
        state.settle_losses()
    train_loss, val_loss, is_best, sample = None, None, False, None
    if is_evaluation:
        with device.autocast(), clock.pause():
            val_loss = evaluate(state.model, corpus.val, world=world)
            is_best = state.take_evaluation(val_loss)
            sample = _sample(state, corpus)
    progress.seconds, speed = clock.read(progress, restart=is_log)
    if is_log:
        train_loss = sum(progress.recent_losses) / len(progress.recent_losses)
        progress.recent_losses = []
    return Report(
        step=progress.step,
        tokens=progress.tokens,
        seconds=progress.seconds,
        lr=lr,
        tokens_per_second=speed,
        train_loss=train_loss,
        val_loss=val_loss,
        is_best=is_best,
        sample=sample,
    )


def _sample(state: TrainingState, corpus: Corpus) -> str:
    """Return what the model writes now, always from the same start and random numbers."""
    start, seed = corpus.val[:1], state.config.seed
    ids = generate(state.model, start, max_new_tokens=SAMPLE_LENGTH, seed=seed)
    return corpus.tokenizer.decode([new for (new,) in ids])


class _Clock:
    """Seconds of training, earlier sessions included, and the speed since the last report."""

    def __init__(self, progress: Progress) -> None:
        self.started = time.perf_counter() - progress.seconds
        self.mark, self.tokens = time.perf_counter(), progress.tokens

    def read(self, progress: Progress, restart: bool) -> tuple[float, float]:
        """Return (seconds, characters per second); with `restart` the speed counts anew."""
        now = time.perf_counter()
        speed = (progress.tokens - self.tokens) / max(now - self.mark, 1e-9)
        if restart:
            self.mark, self.tokens = now, progress.tokens
        return now - self.started, speed

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Keep the time of the block out of the speed."""
        begin = time.perf_counter()
        yield
        self.mark += time.perf_counter() - begin
