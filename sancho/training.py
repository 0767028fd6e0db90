"""Training: its state, its batches, and fit(), the training loop as a generator of reports."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sancho import optim
from sancho.checkpoint import Checkpoint, Progress
from sancho.config import EVALUATED, ModelConfig, TrainConfig
from sancho.corpus import Corpus, require_length
from sancho.device import Device, torch_seed
from sancho.distributed import World
from sancho.dropout import Dropout
from sancho.errors import OtherFunction, UserError, note
from sancho.generate import Model, generate, numpy_implementation
from sancho.loss import Objective, validation_loss
from sancho.model import GPT
from sancho.proof import model_proof
from sancho.seeds import Purpose, generator, seed_of
from sancho.threads import ParallelMap, cores, serial_map, thread_pool
from sancho.weights import weight_shapes

NEAR = 1e-4  # by which rounding may take a loss of chance below ln V
REPORTS_AT_CHANCE = 3  # in a row, after which a note is given
SAMPLE_LENGTH = 80  # characters that are written at an evaluation


class NonFiniteLoss(UserError):
    """The loss, the gradient or the weights became infinite or not a number, at a step (from 1)."""

    def __init__(self, step: int) -> None:
        super().__init__(
            f"the loss or its gradient is not a finite number at step {step}; nothing after the "
            "last checkpoint was kept. Try smaller learning rates or more --warmup_iters"
        )


@dataclass(frozen=True, kw_only=True)
class Report:
    """What fit() reports after a step or an evaluation. Losses are in nats per character."""

    step: int
    tokens: int
    """Characters trained on."""
    seconds: float
    """Time spent in steps and evaluations, also before the run was resumed."""
    lr: float
    """Learning rate of AdamW in this step."""
    tokens_per_second: float
    """Speed over the steps since the last report with a train_loss."""
    train_loss: float | None = None
    """Mean training loss since the last one; every log_interval steps and after an evaluation. Its
    logits are multiplied by logit_scale, so it may be larger than val_loss."""
    val_loss: float | None = None
    """Loss of the validation part, or of EVALUATED characters all over it; after an evaluation
    only."""
    is_best: bool = False
    sample: str | None = None
    """What the model writes after the first character of the validation part, if evaluated."""

    @property
    def val_bpc(self) -> float | None:
        """val_loss in bits per character."""
        return None if self.val_loss is None else self.val_loss / math.log(2)


@dataclass
class TrainingState:
    """Everything needed, with the corpus, for exact resumption."""

    objective: Objective
    optimizers: list[optim.Optimizer]
    train_config: TrainConfig
    device: Device
    progress: Progress = field(default_factory=Progress)
    unread_losses: list[Tensor] = field(default_factory=list)
    """Training losses, (), of the newest steps, not read yet because reading makes a GPU wait."""

    @classmethod
    def start(
        cls, model_config: ModelConfig, train_config: TrainConfig, device: Device, text: np.ndarray
    ) -> "TrainingState":
        """Return the state of a new run, its weights decided by the seed.

        text: the training part, (n,) ids, whose n-grams an n-gram table learns.
        """
        with torch_seed(torch.device("cpu"), train_config.seed, Purpose.INITIALISATION):
            model = GPT(model_config)
        if model_config.ngram_size > 1:
            model.ngram_embedding.learn_vocabulary(text)
        return cls.from_model(model, train_config, device)

    @classmethod
    def from_model(cls, model: GPT, train_config: TrainConfig, device: Device) -> "TrainingState":
        """Return the state of a new run that begins with this model.

        If threads is 0, their number is chosen here. Raises UserError if weights.py lists other
        weights.
        """
        unknown = model.arrays().keys() ^ weight_shapes(model.config).keys()
        if unknown:
            advice = "name the weights of the model in sancho/weights.py"
            raise UserError(
                f"sancho/model.py and sancho/weights.py list different weights: {unknown}; {advice}"
            )
        if not train_config.threads:
            threads = min(cores(), train_config.batch_size) if device.on_cpu else 1
            train_config = replace(train_config, threads=threads)
        objective = Objective(model.to(device.torch_device), train_config)
        optimizers = optim.make_optimizers(model, train_config, list(objective.prediction_heads))
        return cls(objective, optimizers, train_config, device)

    @classmethod
    def restore(
        cls, saved: Checkpoint, train_config: TrainConfig, device: Device
    ) -> "TrainingState":
        """Return the state that `to_checkpoint` saved, to go on with these options."""
        state = cls.from_model(saved.build_model(), train_config, device)
        arrays = dict(saved.optimizer)
        for j, head in enumerate(state.objective.prediction_heads):
            head.data.copy_(torch.from_numpy(arrays.pop(f"look_ahead.{j}.weight")))
        optim.load_optimizer_arrays(state.objective.named_trained(), state.optimizers, arrays)
        state.progress = deepcopy(saved.progress)
        return state

    @property
    def model(self) -> GPT:
        """The model that is trained."""
        return self.objective.model

    def to_checkpoint(self, corpus: Corpus) -> Checkpoint:
        """Return what a checkpoint file holds, from which training can go on.

        On a CPU its arrays are those of the state: save it, or copy them, before the next step.
        Raises NonFiniteLoss.
        """
        self.sync_losses()
        optimizer = optim.optimizer_arrays(self.objective.named_trained(), self.optimizers)
        for j, head in enumerate(self.objective.prediction_heads):
            optimizer[f"look_ahead.{j}.weight"] = head.detach().cpu().numpy()
        return Checkpoint(
            model_config=self.model.config,
            characters=corpus.tokenizer.characters,
            train_config=self.train_config,
            device_config=self.device.config,
            progress=deepcopy(self.progress),
            corpus_name=corpus.name,
            corpus_sha256=corpus.sha256,
            corpus_lengths=corpus.lengths,
            weights=self.model.arrays(),
            optimizer=optimizer,
            proof=model_proof(self.model),
        )

    @property
    def is_evaluation_due(self) -> bool:
        """Whether an evaluation comes next: every eval_interval steps and at the end."""
        config = self.train_config
        step = self.progress.step
        is_its_turn = step == config.max_iters or step % config.eval_interval == 0
        return is_its_turn and step > 0 and not self.progress.is_evaluated

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do: all steps are made, or config.patience has run out."""
        patience = self.train_config.patience
        is_out_of_patience = 0 < patience <= self.progress.evaluations_since_best
        is_at_end = is_out_of_patience or self.progress.step >= self.train_config.max_iters
        return is_at_end and not self.is_evaluation_due

    def sync_losses(self) -> None:
        """Read the unread losses. Raises NonFiniteLoss naming the step of a bad one."""
        losses = torch.stack(self.unread_losses).tolist() if self.unread_losses else []
        for step, loss in enumerate(losses, self.progress.step - len(losses) + 1):
            if not math.isfinite(loss):
                raise NonFiniteLoss(step)
        self.progress.recent_losses += losses
        self.unread_losses = []

    def take_evaluation(self, val_loss: float) -> None:
        """Note a validation loss, and whether it is the best so far."""
        progress = self.progress
        if not math.isfinite(val_loss):
            raise NonFiniteLoss(progress.step)
        progress.is_evaluated = True
        progress.val_loss = val_loss
        progress.evaluations_since_best += 1
        if progress.best_val_loss is None or val_loss < progress.best_val_loss:
            progress.best_val_loss = val_loss
            progress.evaluations_since_best = 0


class Batches:
    """Windows of a text in random order; in each epoch every window is read once.

    Every epoch cuts the text at other places, and the window that reaches past the end is moved to
    the beginning. The windows of a batch depend only on the seed and on its place in the run.
    """

    def __init__(
        self, ids: np.ndarray, block_size: int, config: TrainConfig, device: torch.device
    ) -> None:
        """Take windows of `ids`, (n,) with n > block_size."""
        self.block_size = block_size
        self.config = config
        self.device = device
        self.n_starts = len(ids) - block_size
        self.n_windows = (len(ids) - 1) // block_size
        self.epoch = -1
        self.starts = np.empty(0, np.int64)
        self.offsets = torch.arange(block_size + 1, device=device)
        # torch indexes no uint16: get() undoes the sign.
        self.ids = torch.from_numpy(ids if ids.dtype == np.uint8 else ids.view(np.int16))
        self.ids = self.ids.to(device)

    def window_start(self, index: int) -> int:
        """Return the place in the text at which the run's window `index` (from 0) begins."""
        epoch, place = divmod(index, self.n_windows)
        if epoch != self.epoch:
            random = generator(self.config.seed, Purpose.BATCHES, epoch)
            places = random.permutation(self.n_windows) * self.block_size
            # What the shift moves past the end wraps around.
            self.starts = (places + random.integers(self.block_size)) % self.n_starts
            self.epoch = epoch
        return self.starts[place]

    def get(self, step: int, micro_step: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets, each (B, T) int64, of one micro-batch."""
        number = step * self.config.gradient_accumulation_steps + micro_step
        first = number * self.config.batch_size
        indices = range(first, first + self.config.batch_size)
        on_cuda = self.device.type == "cuda"  # which copies pinned memory without waiting
        starts = torch.tensor([self.window_start(i) for i in indices], pin_memory=on_cuda)
        starts = starts.to(self.device, non_blocking=on_cuda)
        pieces = self.ids[starts[:, None] + self.offsets].long()  # (B, T + 1)
        pieces &= 0xFFFF  # ids past 32767 come as negative numbers
        return pieces[:, :-1], pieces[:, 1:]


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
    times: list[float] = field(default_factory=list)
    """Seconds of each step since the last report with a train_loss."""
    is_told: bool = False
    """Whether the note was given that NumPy computes another function than model.py."""
    at_chance: int = 0
    """Number of reports in a row whose loss is no better than chance."""
    is_warned: bool = False
    """Whether the note on a loss of chance was given."""

    def __post_init__(self) -> None:
        objective = self.state.objective
        config = self.state.train_config
        self.device = self.state.device
        block_size = self.state.model.config.block_size
        self.batches = Batches(self.corpus.train, block_size, config, self.device.torch_device)
        self.parameters = list(objective.parameters())
        objective.train()
        objective.zero_grad()
        self.objective: Callable = torch.compile(objective) if config.compile else objective

    def step(self) -> Report:
        """Make a step."""
        state = self.state
        progress = state.progress
        config = state.train_config
        started = time.perf_counter()
        state.unread_losses.append(self._update())
        progress.step += 1
        progress.tokens += config.characters_per_step(state.model.config)
        progress.is_evaluated = False
        is_log = progress.step % config.log_interval == 0
        if is_log or state.is_evaluation_due or self.device.on_cpu:
            state.sync_losses()
        self.times.append(time.perf_counter() - started)
        progress.seconds += self.times[-1]
        # If an evaluation comes next, its report has the losses.
        return self._report(with_losses=is_log and not state.is_evaluation_due)

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
        return self._report(
            with_losses=True, val_loss=progress.val_loss, is_best=is_best, sample=sample
        )

    def _sample(self) -> str:
        """Return a text by the model. Note, once, if NumPy does not compute the same function."""
        model: Model = self.state.model
        try:
            model = numpy_implementation(self.state.model)
        except OtherFunction as why:
            if not self.is_told:
                self.is_told = True
                note(
                    f"{why}. Until you change that file like sancho/model.py, PyTorch writes, more "
                    "slowly, and to-page and to-huggingface refuse the model"
                )
        seed = self.state.train_config.seed
        first = self.corpus.val[:1]
        ids = generate(model, first, max_new_tokens=SAMPLE_LENGTH, seed=seed)
        return self.corpus.tokenizer.decode([new for (new,) in ids])

    def _report(self, *, with_losses: bool, **evaluation: Any) -> Report:
        config = self.state.train_config
        progress = self.state.progress
        characters = len(self.times) * config.characters_per_step(self.state.model.config)
        losses = progress.recent_losses if with_losses else []
        report = Report(
            step=progress.step,
            tokens=progress.tokens,
            seconds=progress.seconds,
            lr=config.learning_rate * optim.learning_rate_factor(progress.step - 1, config),
            tokens_per_second=characters / max(sum(self.times), 1e-9),
            train_loss=sum(losses) / len(losses) if losses else None,
            **evaluation,
        )
        if with_losses:
            self._watch(losses)
            progress.recent_losses = []
            self.times = []
        return report

    def _watch(self, losses: list[float]) -> None:
        """Note, once, that the model learns nothing: its weights may be finite, but far too large.

        losses: those of the newest steps. A healthy model beats chance before the warm-up ends.
        """
        config = self.state.train_config
        chance = math.log(self.corpus.tokenizer.vocab_size)
        is_warm = self.state.progress.step - len(losses) >= config.warmup_iters
        if not (losses and is_warm) or self.is_warned:
            return
        is_at_chance = sum(losses) / len(losses) >= chance - NEAR
        self.at_chance = self.at_chance + 1 if is_at_chance else 0
        if self.at_chance == REPORTS_AT_CHANCE:
            self.is_warned = True
            note(
                f"at step {self.state.progress.step:,} the loss is no better than chance, "
                f"{chance:.3f}: the model learns nothing. Begin again with smaller learning rates, "
                "or go back to the best model of the run (--init_from its best checkpoint)"
            )

    def _update(self) -> Tensor:
        """Add up the gradients of the step and move the parameters; return the loss, ()."""
        config = self.state.train_config
        optimizers = self.state.optimizers
        factor = optim.learning_rate_factor(self.state.progress.step, config)
        optim.set_learning_rate(optimizers, factor)
        step_loss = torch.zeros((), device=self.device.torch_device)
        mine = range(self.world.rank, config.gradient_accumulation_steps, self.world.size)
        for micro_step in mine:
            step_loss += self._add_gradients(micro_step)
        self.world.sum_gradients(self.parameters)
        self.world.sum(step_loss)
        # The n-gram table is left out, because its optimizer scales its steps by itself.
        dense = [p for p in self.parameters if p.grad is None or not p.grad.is_sparse]
        norm = torch.nn.utils.clip_grad_norm_(dense, config.grad_clip or math.inf)
        step_loss += 0 * norm  # not a number where the norm is not finite
        with self.device.autocast():  # on a GPU Muon's products are in bfloat16, too
            self.parallel_map(lambda optimizer: optimizer.step(), optimizers)
        for optimizer in optimizers:
            optimizer.zero_grad()
        return step_loss

    def _add_gradients(self, micro_step: int) -> Tensor:
        """Add the gradients of one micro-batch; return what it adds to the loss of the step, ().

        Each thread takes some windows; their gradients are added in the order of the windows.
        """
        state = self.state
        config = state.train_config
        step = state.progress.step
        look_ahead_weight = state.objective.look_ahead_weight(step, config.max_iters)

        def gradients(ids: Tensor, targets: Tensor, numbers: Tensor) -> tuple[Tensor, tuple]:
            with self._dropout(micro_step, numbers), self.device.autocast(training=True):
                reported, minimised = self.objective(ids, targets, look_ahead_weight)
            fraction = len(ids) / (config.batch_size * config.gradient_accumulation_steps)
            found = torch.autograd.grad(minimised * fraction, self.parameters, allow_unused=True)
            return reported.detach() * fraction, found

        ids, targets = self.batches.get(step, micro_step)
        numbers = torch.arange(len(ids))
        parts = [each.tensor_split(self.threads) for each in (ids, targets, numbers)]
        losses, by_thread = zip(*self.parallel_map(gradients, *parts), strict=True)
        for p, *grads in zip(self.parameters, *by_thread, strict=True):
            if grads[0] is not None:
                total = reduce(torch.add, grads)
                if not total.is_sparse:  # AdamW's kernel reads numbers as they lie in memory
                    total = total.contiguous()
                p.grad = total if p.grad is None else p.grad + total
        return reduce(torch.add, losses)

    def _dropout(self, micro_step: int, numbers: Tensor) -> AbstractContextManager[None]:
        """Return a context for the forward pass of the windows of these numbers in a micro-batch.

        On a CPU the masks of a window depend only on its number in the step, and not on how many
        threads, processes or micro-batches share the step.
        """
        config = self.state.train_config
        step = self.state.progress.step
        model = self.state.model.config
        if not (model.dropout or model.ngram_dropout):
            return nullcontext()
        if config.compile or not self.device.on_cpu:
            place = (step, micro_step)
            return torch_seed(self.device.torch_device, config.seed, Purpose.DROPOUT, *place)
        generators = []
        for number in (micro_step * config.batch_size + numbers).tolist():
            seed = seed_of(config.seed, Purpose.DROPOUT, step, number)
            generators.append(torch.Generator().manual_seed(seed))
        return Dropout.drawing_from(generators)


if __name__ == "__main__":
    raise SystemExit("sancho.training is a part of the library; start train.py")
