"""Training: the loss, its evaluation, and fit(), the training loop as a generator of reports."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sancho import optim
from sancho.checkpoint import Checkpoint, Progress
from sancho.config import ModelConfig, RunConfig, TrainConfig
from sancho.corpus import Corpus, require_length
from sancho.errors import FailedInAllProcesses, UserError
from sancho.generate import generate
from sancho.machine.device import Device, compiled, explaining_compiler, torch_seed
from sancho.machine.distributed import World
from sancho.machine.seeds import Purpose, generator, seed_of
from sancho.machine.threads import ParallelMap, serial_map, thread_pool
from sancho.model import GPT, Dropout, cross_entropy

SAMPLE_LENGTH = 80  # characters that are written at an evaluation
EVALUATED = 1_000_000  # most characters of the validation part that an evaluation in a run reads
EVALUATED_AT_ONCE = 16  # windows
FIRST_WEIGHT = 0.3  # of the first prediction head's loss at the start; each next head has half
FADE_END = 0.7  # fraction of the steps after which the prediction heads count for nothing


class Objective(nn.Module):
    """Training loss: cross-entropy plus auxiliary multi-token-prediction heads.

    Prediction head j (from 1) is a linear layer that reads what the output head reads and predicts
    the character j places after the next one. Only training has them. Gloeckle et al. 2024,
    arXiv:2404.19737; for characters: Al-Rfou et al. 2018, arXiv:1808.04444.
    """

    def __init__(self, model: GPT, config: TrainConfig) -> None:
        """Add `config.look_ahead` prediction heads, all zero like a new output head."""
        super().__init__()
        self.model = model
        self.logit_scale = config.logit_scale
        heads = (torch.zeros_like(model.head.weight) for _ in range(config.look_ahead))  # (V, C)
        self.look_ahead = nn.ParameterList(heads)

    def forward(self, ids: Tensor, targets: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return what is reported and what is minimised, both ().

        The first is the loss of the model, its logits multiplied by the scale; the second adds the
        losses of the prediction heads. ids, targets: (B, T). weight: of `look_ahead_weight`.
        """
        features = self.model.features(ids)  # (B, T, C)
        logits = self.logit_scale * self.model.head(features).float()  # (B, T, V)
        reported = cross_entropy(logits, targets)
        minimised = reported
        if weight is not None:
            for j, head in enumerate(self.look_ahead[: ids.shape[1] - 1], 1):
                ahead = cross_entropy(F.linear(features[:, :-j], head), targets[:, j:])
                minimised = minimised + weight * FIRST_WEIGHT / 2 ** (j - 1) * ahead
        return reported, minimised

    def look_ahead_weight(self, step: int, max_iters: int) -> Tensor | None:
        """Return the factor of the heads' losses at step `step` (from 0), (); None for nothing.

        It falls linearly from 1 to 0, which it reaches at FADE_END of the run.
        """
        weight = 1 - step / (FADE_END * max_iters)
        return torch.tensor(weight) if len(self.look_ahead) and weight > 0 else None

    def named_trained(self) -> dict[str, nn.Parameter]:
        """Return all that is trained by name: as in checkpoint.py, then look_ahead.0, 1, …"""
        return {name.removeprefix("model."): p for name, p in self.named_parameters()}


Windows: TypeAlias = Iterator[tuple[Tensor, Tensor]]  # inputs and targets, each (B, T)


def windows(ids: np.ndarray, block_size: int, batch_size: int, most: int | None = None) -> Windows:
    """Yield (inputs, targets), each (B, T), that cover `ids`, (n,), in order, each target once.

    All windows have T = block_size, but for the last one, which takes what is left.
    most: of a text with more targets so many, in whole windows that are spread over all of it.
    Raises ValueError for fewer than two ids.
    """
    if len(ids) < 2:
        raise ValueError("a loss needs at least two characters")
    whole = (len(ids) - 1) // block_size
    starts = np.arange(whole) * block_size
    rest = ids[whole * block_size :]
    if most is not None and len(ids) - 1 > most:
        count = max(1, most // block_size)
        starts = starts[np.arange(count) * whole // count]
        rest = rest[:0]
    for first in range(0, len(starts), batch_size):
        places = starts[first : first + batch_size, None] + np.arange(block_size + 1)
        pieces = torch.from_numpy(ids[places].astype(np.int64))  # (B, T + 1)
        yield pieces[:, :-1], pieces[:, 1:]
    if len(rest) > 1:
        piece = torch.from_numpy(rest.astype(np.int64))
        yield piece[None, :-1], piece[None, 1:]


def character_losses(
    model: GPT, ids: np.ndarray, batch_size: int = 16, threads: int = 1
) -> np.ndarray:
    """Return −ln p of each id but the first, in nats: (n,) -> (n − 1,) float32.

    Each is predicted in its window (see `windows`), with dropout off. On a CPU threads share the
    windows. Raises ValueError for fewer than two ids.
    """
    on_cpu = model.head.weight.device.type == "cpu"
    with thread_pool(threads) if on_cpu else nullcontext(serial_map) as parallel_map:
        batches = windows(ids, model.config.block_size, batch_size)
        return np.concatenate([*losses_in_groups(model, batches, threads, parallel_map)])


def losses_in_groups(
    model: GPT,
    batches: Windows,
    group_size: int,
    parallel_map: ParallelMap,
    world: World = World(),
    autocast: Callable[[], AbstractContextManager] = nullcontext,
) -> Iterator[np.ndarray]:
    """Yield −ln p of the targets of some windows, (N,) float32 in nats, a group after the other.

    A group has `group_size` batches for each process, which yields the losses that it computes.
    """
    device = model.head.weight.device

    @torch.inference_mode()
    def losses_of(batch: tuple[Tensor, Tensor]) -> np.ndarray:
        inputs, targets = (part.to(device) for part in batch)
        with autocast():
            return cross_entropy(model(inputs), targets, reduction="none").cpu().numpy()

    was_training = model.training
    try:
        model.eval()
        while group := list(islice(batches, world.size * group_size)):
            mine = group[world.rank :: world.size]
            yield np.concatenate([np.empty(0, np.float32), *parallel_map(losses_of, mine)])
    finally:
        model.train(was_training)


def validation_loss(model: GPT, ids: np.ndarray, batch_size: int = 16, threads: int = 1) -> float:
    """Return the mean of `character_losses`, in nats per character."""
    return float(character_losses(model, ids, batch_size, threads).mean(dtype=np.float64))


class NonFiniteLoss(FailedInAllProcesses):
    """The loss, the gradient or the weights became infinite or not a number, at a step (from 1)."""

    def __init__(self, step: int) -> None:
        super().__init__(
            f"the loss or its gradient is not a finite number at step {step}; nothing after the "
            "last checkpoint was kept. Smaller learning rates or a longer --warmup_iters help"
        )


@dataclass(frozen=True, kw_only=True)
class Report:
    """What fit() tells after a step, and while it evaluates. Losses in nats per character."""

    step: int
    tokens: int
    """Characters trained on."""
    seconds: float
    """Time spent in steps and evaluations, those of earlier sessions included."""
    lr: float
    """Learning rate of AdamW in this step."""
    tokens_per_second: float
    """Since the last report with a train_loss, without evaluations."""
    evaluated: float | None = None
    """How much of an evaluation is done, from 0 to 1, where one goes on; then there is no loss."""
    train_loss: float | None = None
    """Mean since the last one; every log_interval steps and where an evaluation has ended. It is
    that of logits multiplied by logit_scale, so the val_loss may be less."""
    val_loss: float | None = None
    """Of the validation part, or of EVALUATED characters all over it; only where an evaluation has
    ended, as all that follows."""
    is_best: bool = False
    sample: str | None = None
    """What the model writes after the first character of the validation part."""

    @property
    def val_bpc(self) -> float | None:
        """val_loss in bits per character."""
        return None if self.val_loss is None else self.val_loss / math.log(2)


@dataclass
class TrainingState:
    """Everything needed, with the corpus, for exact resumption."""

    objective: Objective
    optimizers: list[optim.Optimizer]
    config: TrainConfig
    run: RunConfig = field(default_factory=RunConfig)
    progress: Progress = field(default_factory=Progress)
    unread_losses: list[Tensor] = field(default_factory=list)
    """Training losses, (), of the newest steps: to read one from a GPU makes the GPU wait."""

    @classmethod
    def start(
        cls,
        config: ModelConfig,
        train: TrainConfig,
        device: Device,
        text: np.ndarray | None = None,
    ) -> "TrainingState":
        """Return the state of a new run, its weights decided by train.seed.

        text: the training part, (n,) ids, from which a vocabulary of n-grams is learned.
        Raises ValueError where the model has one and there is no text.
        """
        with torch_seed(torch.device("cpu"), train.seed, Purpose.INITIALISATION):
            model = GPT(config)
        if config.ngram_size > 1 and config.ngram_vocabulary:
            if text is None:
                raise ValueError("a vocabulary of n-grams is learned from a text; give one")
            model.ngram_embedding.learn_vocabulary(text)
        return cls.from_model(model, train, device)

    @classmethod
    def from_model(cls, model: GPT, config: TrainConfig, device: Device) -> "TrainingState":
        """Return the state of a new run that begins with this model.

        Where config.threads is 0, the number of threads is decided here, once for the whole run.
        """
        if not config.threads:
            cores = torch.get_num_threads() if device.on_cpu else 1
            config = replace(config, threads=min(cores, config.batch_size))
        objective = Objective(model.to(device.torch_device), config)
        optimizers = optim.make_optimizers(model, config, list(objective.look_ahead))
        return cls(objective, optimizers, config)

    @classmethod
    def restore(cls, saved: Checkpoint, config: TrainConfig, device: Device) -> "TrainingState":
        """Return the state that `to_checkpoint` saved, to go on with `config`."""
        state = cls.from_model(saved.build_model(), config, device)
        arrays = dict(saved.optimizer)
        for j, head in enumerate(state.objective.look_ahead):
            head.data.copy_(torch.from_numpy(arrays.pop(f"look_ahead.{j}.weight")))
        optim.load_optimizer_arrays(state.objective.named_trained(), state.optimizers, arrays)
        state.progress = deepcopy(saved.progress)
        return state

    @property
    def model(self) -> GPT:
        """The model that is trained."""
        return self.objective.model

    def to_checkpoint(self, corpus: Corpus, *, with_optimizer: bool) -> Checkpoint:
        """Return what a checkpoint file holds; only with the optimizer can training go on.

        On a CPU its arrays are those of the state: save it, or copy them, before the next step.
        """
        self.sync_losses()
        optimizer: dict[str, np.ndarray] = {}
        if with_optimizer:
            optimizer = optim.optimizer_arrays(self.objective.named_trained(), self.optimizers)
            for j, head in enumerate(self.objective.look_ahead):
                optimizer[f"look_ahead.{j}.weight"] = head.detach().cpu().numpy()
        return Checkpoint(
            model=self.model.config,
            characters=corpus.tokenizer.characters,
            train=self.config,
            run=self.run,
            progress=deepcopy(self.progress),
            corpus_name=corpus.name,
            corpus_sha256=corpus.sha256,
            weights=self.model.arrays(),
            optimizer=optimizer,
        )

    @property
    def is_evaluation_due(self) -> bool:
        """Whether an evaluation follows the last step: every eval_interval steps and at the end."""
        step = self.progress.step
        is_its_turn = step == self.config.max_iters or step % self.config.eval_interval == 0
        return is_its_turn and step > self.progress.evaluated_step

    @property
    def is_done(self) -> bool:
        """Whether all steps are done, or config.patience evaluations passed without a better."""
        out_of_patience = 0 < self.config.patience <= self.progress.evaluations_since_best
        return out_of_patience or self.progress.step >= self.config.max_iters

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do, neither a step nor an evaluation."""
        return self.is_done and not self.is_evaluation_due

    def sync_losses(self) -> None:
        """Read the unread losses. Raises NonFiniteLoss naming the step of a bad one."""
        losses = torch.stack(self.unread_losses).tolist() if self.unread_losses else []
        for step, loss in enumerate(losses, self.progress.step - len(losses) + 1):
            if not math.isfinite(loss):
                raise NonFiniteLoss(step)
        self.progress.recent_losses += losses
        self.unread_losses = []

    def take_evaluation(self, val_loss: float) -> bool:
        """Note a validation loss; return whether it is the best so far."""
        progress = self.progress
        if not math.isfinite(val_loss):
            raise NonFiniteLoss(progress.step)
        progress.evaluated_step = progress.step
        progress.val_loss = val_loss
        progress.evaluations_since_best += 1
        if progress.best_val_loss is not None and val_loss >= progress.best_val_loss:
            return False
        progress.best_val_loss = val_loss
        progress.evaluations_since_best = 0
        return True


class Batches:
    """Windows of a text in random order; in an epoch each is read once.

    Every epoch cuts the text at other places. Which windows a batch has depends on the seed and on
    how many windows come before it.
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
        # On the CPU the text stays on disk; a GPU holds it in its own memory.
        self.ids = torch.from_numpy(ids if ids.dtype == np.uint8 else ids.view(np.int16))
        self.ids = self.ids.to(device)

    def window_start(self, index: int) -> int:
        """Return the place in the text at which the run's window `index` (from 0) begins."""
        epoch, place = divmod(index, self.n_windows)
        if epoch != self.epoch:
            random = generator(self.config.seed, Purpose.BATCHES, epoch)
            places = random.permutation(self.n_windows) * self.block_size
            # What a shift moves past the end begins near the beginning.
            self.starts = (places + random.integers(self.block_size)) % self.n_starts
            self.epoch = epoch
        return self.starts[place]

    def get(self, step: int, micro_step: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets, each (B, T) int64, of one micro-batch."""
        number = step * self.config.gradient_accumulation_steps + micro_step
        first = number * self.config.batch_size
        indices = range(first, first + self.config.batch_size)
        starts = torch.tensor([self.window_start(index) for index in indices])
        if self.device.type == "cuda":  # from pinned memory, so that nobody waits for the copy
            starts = starts.pin_memory().to(self.device, non_blocking=True)
        windows = self.ids[starts.to(self.device)[:, None] + self.offsets].long()  # (B, T + 1)
        windows &= 0xFFFF  # ids past 32767 come as negative numbers
        return windows[:, :-1], windows[:, 1:]


def fit(
    state: TrainingState, corpus: Corpus, device: Device, *, world: World = World()
) -> Iterator[Report]:
    """Train until state.config.max_iters steps are done; report after every step.

    A step with an evaluation after it has several reports: one before the evaluation, others while
    it goes on, and one with its losses. Whenever it yields, `state` may be saved: a run that goes
    on from there makes the same steps and evaluations. Stops early if state.config.patience asks
    for it. All processes of a `world` call it and get the same reports, but for the seconds.
    Raises UserError at once for a corpus that is too short or a batch that can't be shared; later
    NonFiniteLoss, or UserError where torch.compile was asked for and fails.
    """
    config = state.config
    require_length(corpus, state.model.config.block_size)
    if config.gradient_accumulation_steps % world.size:
        raise UserError(
            f"--gradient_accumulation_steps is {config.gradient_accumulation_steps}; the processes "
            f"share them, so it must be a multiple of {world.size} (and --batch_size so much "
            "smaller)"
        )
    return _train(state, corpus, device, world)


def _train(state: TrainingState, corpus: Corpus, device: Device, world: World) -> Iterator[Report]:
    on_cores = device.on_cpu and not state.run.compile
    threads = min(state.config.threads, state.config.batch_size) if on_cores else 1
    with thread_pool(threads) if on_cores else nullcontext(serial_map) as parallel_map:
        loop = TrainingLoop(state, corpus, device, world, threads, parallel_map)
        while True:
            if state.is_evaluation_due:
                yield from loop.evaluate()
            if state.is_done:
                return
            yield loop.advance()


@dataclass
class TrainingLoop:
    """The steps and the evaluations of `fit`."""

    state: TrainingState
    corpus: Corpus
    device: Device
    world: World
    threads: int
    parallel_map: ParallelMap
    seconds: float = 0.0
    """Of the steps since the last report with a train_loss."""
    tokens: int = 0

    def __post_init__(self) -> None:
        state = self.state
        block_size = state.model.config.block_size
        self.batches = Batches(
            self.corpus.train, block_size, state.config, self.device.torch_device
        )
        self.parameters = list(state.objective.parameters())
        state.objective.train()
        state.objective.zero_grad()  # a step that was interrupted has left some
        self.objective: nn.Module = state.objective
        if state.run.compile:
            self.objective = compiled(state.objective)

    def advance(self) -> Report:
        """Make a step."""
        state = self.state
        progress = state.progress
        characters = state.config.characters_per_step(state.model.config)
        begin = time.perf_counter()
        loss = self._step()
        # Only a call can be interrupted: all three lines are done, or none.
        progress.step += 1
        progress.tokens += characters
        state.unread_losses.append(loss)
        is_log = progress.step % state.config.log_interval == 0
        if is_log or state.is_evaluation_due or self.device.on_cpu:
            state.sync_losses()
        seconds = time.perf_counter() - begin
        self.tokens += characters
        self.seconds += seconds
        progress.seconds += seconds
        if state.is_evaluation_due:
            return self._report(evaluated=0.0)
        return self._report_losses() if is_log else self._report()

    def evaluate(self) -> Iterator[Report]:
        """Compute the validation loss and let the model write a little."""
        state = self.state
        val = self.corpus.val
        batches = windows(val, state.model.config.block_size, EVALUATED_AT_ONCE, EVALUATED)
        sums = torch.zeros(2, dtype=torch.float64)  # of the losses, and how many they are
        begin = time.perf_counter()
        for losses in losses_in_groups(
            state.model,
            batches,
            self.threads,
            self.parallel_map,
            self.world,
            self.device.autocast,
        ):
            group = [losses.sum(dtype=np.float64), len(losses)]
            sums += self.world.sum(torch.tensor(group, dtype=torch.float64))
            state.progress.seconds += time.perf_counter() - begin
            yield self._report(evaluated=sums[1].item() / min(len(val) - 1, EVALUATED))
            begin = time.perf_counter()
        with self.device.autocast():
            seed = state.config.seed
            ids = generate(state.model, val[:1], max_new_tokens=SAMPLE_LENGTH, seed=seed)
            sample = self.corpus.tokenizer.decode([new for (new,) in ids])
        state.progress.seconds += time.perf_counter() - begin
        val_loss = (sums[0] / sums[1]).item()
        is_best = state.take_evaluation(val_loss)
        yield self._report_losses(val_loss=val_loss, is_best=is_best, sample=sample)

    def _report_losses(self, **found: Any) -> Report:
        losses = self.state.progress.recent_losses
        train_loss = sum(losses) / len(losses) if losses else None
        report = self._report(train_loss=train_loss, **found)
        self.state.progress.recent_losses = []
        self.seconds = 0.0
        self.tokens = 0
        return report

    def _report(self, **found: Any) -> Report:
        config = self.state.config
        progress = self.state.progress
        return Report(
            step=progress.step,
            tokens=progress.tokens,
            seconds=progress.seconds,
            lr=config.learning_rate * optim.learning_rate_factor(progress.step - 1, config),
            tokens_per_second=self.tokens / max(self.seconds, 1e-9),
            **found,
        )

    def _step(self) -> Tensor:
        config = self.state.config
        optimizers = self.state.optimizers
        factor = optim.learning_rate_factor(self.state.progress.step, config)
        optim.set_learning_rate(optimizers, factor)
        step_loss = torch.zeros((), device=self.device.torch_device)
        for micro_step in range(
            self.world.rank, config.gradient_accumulation_steps, self.world.size
        ):
            with explaining_compiler():
                step_loss += self._add_gradients(micro_step)
        self.world.sum_gradients(self.parameters)
        self.world.sum(step_loss)
        # The rows of the n-gram table are left out: their optimizer sets the length of their steps.
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

        def gradients(
            ids: Tensor, targets: Tensor, numbers: Tensor
        ) -> tuple[Tensor, Sequence[Tensor | None]]:
            with self._dropout(micro_step, numbers):
                reported, minimised = self._losses(ids, targets)
            found = torch.autograd.grad(minimised, self.parameters, allow_unused=True)
            return reported.detach(), found

        ids, targets = self.batches.get(self.state.progress.step, micro_step)
        numbers = torch.arange(len(ids))
        parts = [each.tensor_split(self.threads) for each in (ids, targets, numbers)]
        found = self.parallel_map(gradients, *parts)
        losses, by_thread = zip(*found, strict=True)
        for p, *grads in zip(self.parameters, *by_thread, strict=True):
            if grads[0] is not None:
                total = reduce(torch.add, grads)
                if not total.is_sparse:  # AdamW's kernel reads numbers as they lie in memory
                    total = total.contiguous()
                p.grad = total if p.grad is None else p.grad + total
        return reduce(torch.add, losses)

    def _losses(self, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return what windows add to the reported loss of the step and to the minimised one, ()."""
        state = self.state
        config = state.config
        weight = state.objective.look_ahead_weight(state.progress.step, config.max_iters)
        with self.device.autocast(training=True):
            reported, minimised = self.objective(ids, targets, weight)
        fraction = len(ids) / (config.batch_size * config.gradient_accumulation_steps)
        return reported * fraction, minimised * fraction

    def _dropout(self, micro_step: int, numbers: Tensor) -> AbstractContextManager[None]:
        """Return a context for the forward pass of the windows of these numbers in a micro-batch.

        On a CPU the masks of a window depend on its number in the step alone, so not on how many
        threads, processes or micro-batches share the step.
        """
        config = self.state.config
        step = self.state.progress.step
        model = self.state.model.config
        if not (model.dropout or model.ngram_dropout):
            return nullcontext()
        if self.state.run.compile or not self.device.on_cpu:
            place = (step, micro_step)
            return torch_seed(self.device.torch_device, config.seed, Purpose.DROPOUT, *place)
        generators = []
        for number in (micro_step * config.batch_size + numbers).tolist():
            seed = seed_of(config.seed, Purpose.DROPOUT, step, number)
            generators.append(torch.Generator().manual_seed(seed))
        return Dropout.drawing_from(generators)
