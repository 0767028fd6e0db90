"""The training loop: fit(), a generator of reports, whose steps are TrainingLoop.step."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from sancho.config import EVALUATED
from sancho.errors import note
from sancho.generate import generate
from sancho.implementation import implementation_of
from sancho.loss import validation_loss
from sancho.machine.distributed import World
from sancho.machine.threads import ParallelMap, backward, serial_map, thread_pool
from sancho.optim import learning_rate_factor, set_learning_rate
from sancho.run.batches import Batches
from sancho.run.report import Report, Reporter
from sancho.run.state import TrainingState
from sancho.shared.dropout import masks
from sancho.text.corpus import Corpus, require_length

SAMPLE_LENGTH = 80  # characters that are written at an evaluation


def fit(state: TrainingState, corpus: Corpus, *, world: World = World()) -> Iterator[Report]:
    """Train to the end of `state.train_config`; report after every step and every evaluation.

    After every report `state` may be saved: a run that goes on from there makes the same steps and
    evaluations. If `state.is_evaluation_due` after a step, that evaluation comes next. All
    processes of a `world` call this and get the same reports, except for the times; each computes
    an equal share of the micro-batches.
    Raises UserError for a corpus that is too short, and NonFiniteLoss.
    """
    require_length(corpus, state.model.config.block_size)
    config = state.train_config
    on_cores = state.device.on_cpu and not config.compile
    threads = min(config.threads, config.batch_size) if on_cores else 1
    with thread_pool(threads) if on_cores else nullcontext(serial_map) as parallel_map:
        loop = TrainingLoop(state, corpus, world, threads, parallel_map)
        while not state.is_done:
            yield loop.evaluate() if state.is_evaluation_due else loop.step()


@dataclass
class TrainingLoop:
    """The steps and the evaluations of `fit`."""

    state: TrainingState
    corpus: Corpus
    world: World
    threads: int
    parallel_map: ParallelMap
    is_told: bool = False
    """Whether the note was given that NumPy computes another function than model.py."""

    def __post_init__(self) -> None:
        objective = self.state.objective
        config = self.state.train_config
        self.device = self.state.device
        block_size = self.state.model.config.block_size
        self.batches = Batches(self.corpus.train, block_size, config, self.device.torch_device)
        self.reporter = Reporter(self.state, self.corpus.tokenizer.vocab_size)
        self.parameters = list(objective.parameters())
        objective.train()
        objective.zero_grad()
        self.objective: Callable = torch.compile(objective) if config.compile else objective

    def step(self) -> Report:
        """Make one step: the learning rate, the gradient of a batch, the optimizers."""
        state = self.state
        config = state.train_config
        progress = state.progress
        started = time.perf_counter()
        set_learning_rate(state.optimizers, learning_rate_factor(progress.step, config))
        weight = state.objective.look_ahead_weight(progress.step, config.max_iters)
        windows = config.batch_size * config.gradient_accumulation_steps  # in a step

        def losses(micro_step: int, ids: Tensor, targets: Tensor, numbers: Tensor) -> tuple:
            with (
                masks(state.model.config, config, self.device, progress.step, micro_step, numbers),
                self.device.autocast(training=True),
            ):
                reported, minimised = self.objective(ids, targets, weight)
            fraction = len(ids) / windows
            return reported * fraction, minimised * fraction

        loss = torch.zeros((), device=self.device.torch_device)
        # Each process computes its share of the micro-batches, and all gradients are summed.
        for i in range(self.world.rank, config.gradient_accumulation_steps, self.world.size):
            ids, targets = self.batches.get(progress.step, i)  # (B, T), (B, T)
            batch = (ids, targets, torch.arange(len(ids)))
            loss += backward(
                partial(losses, i), batch, self.parameters, self.threads, self.parallel_map
            )
        self.world.sum_gradients(self.parameters)
        self.world.sum(loss)

        # The n-gram table is left out, because its optimizer scales its steps by itself.
        dense = [p for p in self.parameters if p.grad is None or not p.grad.is_sparse]
        norm = clip_grad_norm_(dense, config.grad_clip or math.inf)
        with self.device.autocast():  # on a GPU Muon's products are in bfloat16, too
            self.parallel_map(lambda optimizer: optimizer.step(), state.optimizers)
        for optimizer in state.optimizers:
            optimizer.zero_grad()

        state.unread_losses.append(loss + 0 * norm)  # not a number where the norm is not finite
        progress.step += 1
        progress.tokens += config.characters_per_step(state.model.config)
        progress.is_evaluated = False
        return self._reported(time.perf_counter() - started)

    def _reported(self, seconds: float) -> Report:
        """Return the report of a step that took so long; an evaluation that is due has its loss."""
        state = self.state
        config = state.train_config
        started = time.perf_counter()
        is_log = state.progress.step % config.log_interval == 0
        if is_log or state.is_evaluation_due or self.device.on_cpu:  # a GPU has to wait for this
            state.sync_losses()
        self.reporter.times.append(seconds + time.perf_counter() - started)
        state.progress.seconds += self.reporter.times[-1]
        return self.reporter.report(with_losses=is_log and not state.is_evaluation_due)

    def evaluate(self) -> Report:
        """Compute the validation loss and let the model write a little."""
        progress = self.state.progress
        started = time.perf_counter()
        with self.device.autocast():
            val_loss = validation_loss(
                self.state.model,
                self.corpus.val,
                most=EVALUATED,
                world=self.world,
                parallel_map=self.parallel_map,
            )
            self.state.take_evaluation(val_loss)
            sample = self._sample()
        progress.seconds += time.perf_counter() - started
        is_best = progress.evaluations_since_best == 0
        return self.reporter.report(
            with_losses=True, val_loss=progress.val_loss, is_best=is_best, sample=sample
        )

    def _sample(self) -> str:
        """Return a text by the model."""
        writer = implementation_of(self.state.model, self._tell)
        seed = self.state.train_config.seed
        first = self.corpus.val[:1]
        ids = generate(writer, first, max_new_tokens=SAMPLE_LENGTH, seed=seed)
        return self.corpus.tokenizer.decode([new for (new,) in ids])

    def _tell(self, why: str) -> None:
        """Note, once, that NumPy computes another function than model.py."""
        if not self.is_told:
            self.is_told = True
            note(why)


if __name__ == "__main__":
    raise SystemExit("sancho.training is a part of the library; start train.py")
