"""Training: the loss, its evaluation, and fit(), the training loop as a generator of reports."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import islice
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sancho import optim
from sancho.checkpoint import Checkpoint, Progress
from sancho.config import ModelConfig, RunConfig, TrainConfig
from sancho.corpus import Corpus, require_length
from sancho.errors import UserError
from sancho.generate import generate
from sancho.machine.device import Device, compiled, torch_seed
from sancho.machine.distributed import World
from sancho.machine.seeds import Purpose, generator, seed_of
from sancho.machine.threads import ParallelMap, thread_pool
from sancho.model import GPT, Dropout, cross_entropy

SAMPLE_LENGTH = 80  # characters that are written at an evaluation
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
        self.model, self.logit_scale = model, config.logit_scale
        heads = (torch.zeros_like(model.head.weight) for _ in range(config.look_ahead))  # (V, C)
        self.look_ahead = nn.ParameterList(heads)

    def forward(self, ids: Tensor, targets: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the loss of the model, (), and that with the prediction heads, ().

        ids, targets: (B, T). weight: what `look_ahead_weight` returns.
        """
        features = self.model.features(ids)  # (B, T, C)
        loss = total = cross_entropy(self.logit_scale * self.model.head(features), targets)
        if weight is not None:
            for j, head in enumerate(self.look_ahead[: ids.shape[1] - 1], 1):
                ahead = cross_entropy(F.linear(features[:, :-j], head), targets[:, j:])
                total = total + weight * FIRST_WEIGHT / 2 ** (j - 1) * ahead
        return loss, total

    def look_ahead_weight(self, step: int, max_iters: int) -> Tensor | None:
        """Return the factor of the heads' losses at step `step` (from 0), (); None for nothing.

        It falls linearly from 1 to 0, which it reaches at FADE_END of the run.
        """
        weight = 1 - step / (FADE_END * max_iters)
        return torch.tensor(weight) if len(self.look_ahead) and weight > 0 else None

    def named_trained(self) -> dict[str, nn.Parameter]:
        """Return all that is trained by name: as in checkpoint.py, then look_ahead.0, 1, …"""
        return {name.removeprefix("model."): p for name, p in self.named_parameters()}


def windows(ids: np.ndarray, block_size: int, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (inputs, targets), each (B, T), that cover `ids`, (n,), in order, each target once.

    All windows have T = block_size, but for the last one, which takes what is left.
    """
    whole = (len(ids) - 1) // block_size
    for first in range(0, whole, batch_size):
        last = min(first + batch_size, whole)
        piece = torch.from_numpy(ids[first * block_size : last * block_size + 1].astype(np.int64))
        yield piece[:-1].view(-1, block_size), piece[1:].view(-1, block_size)
    rest = torch.from_numpy(ids[whole * block_size :].astype(np.int64))
    if len(rest) > 1:
        yield rest[None, :-1], rest[None, 1:]


def character_losses(
    model: GPT, ids: np.ndarray, batch_size: int = 16, threads: int = 1, world: World = World()
) -> np.ndarray:
    """Return −ln p of each id but the first, in nats: (n,) -> (n − 1,) float32.

    Each is predicted in its window (see `windows`), with dropout off. On a CPU threads share the
    windows. So do the processes of a `world`, each of which returns the losses that it computes.
    Raises ValueError for fewer than two ids.
    """
    if len(ids) < 2:
        raise ValueError("a loss needs at least two characters")
    device = next(model.parameters()).device
    threads = threads if device.type == "cpu" else 1

    @torch.inference_mode()
    def losses_of(batch: tuple[Tensor, Tensor]) -> np.ndarray:
        inputs, targets = (part.to(device) for part in batch)
        return cross_entropy(model(inputs), targets, reduction="none").cpu().numpy()

    batches = windows(ids, model.config.block_size, batch_size)
    mine, losses = islice(batches, world.rank, None, world.size), [np.empty(0, np.float32)]
    was_training = model.training
    try:
        model.eval()
        with thread_pool(threads) as parallel_map:
            while group := list(islice(mine, threads)):
                losses += parallel_map(losses_of, group)
    finally:
        model.train(was_training)
    return np.concatenate(losses)


def validation_loss(
    model: GPT, ids: np.ndarray, batch_size: int = 16, threads: int = 1, world: World = World()
) -> float:
    """Return the mean of `character_losses` over all processes, in nats per character."""
    losses = character_losses(model, ids, batch_size, threads=threads, world=world)
    total = world.sum(torch.tensor(losses.sum(dtype=np.float64)))
    return total.item() / (len(ids) - 1)


class NonFiniteLoss(UserError):
    """The loss, the gradient or the weights became infinite or not a number, at a step (from 1)."""

    def __init__(self, step: int) -> None:
        super().__init__(
            f"the loss or its gradient is not a finite number at step {step}; nothing after the "
            "last checkpoint was kept. Smaller learning rates or a longer --warmup_iters help"
        )


@dataclass(frozen=True, kw_only=True)
class Report:
    """What fit() tells after a step. Losses in nats per character."""

    step: int
    tokens: int
    """Characters trained on."""
    seconds: float
    """Time spent in steps and evaluations, those of earlier sessions included."""
    lr: float
    """Learning rate of AdamW in this step."""
    tokens_per_second: float
    """Since the last report with a train_loss, without evaluations."""
    train_loss: float | None = None
    """Mean since the last one; every log_interval steps, at an evaluation and at the end."""
    val_loss: float | None = None
    """Over the whole validation part; only at an evaluation, as all that follows."""
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
    def start(cls, model: ModelConfig, config: TrainConfig, device: Device) -> "TrainingState":
        """Return the state of a new run, its weights decided by config.seed."""
        with torch_seed(torch.device("cpu"), config.seed, Purpose.INITIALISATION):
            return cls.start_from(GPT(model), config, device)

    @classmethod
    def start_from(cls, model: GPT, config: TrainConfig, device: Device) -> "TrainingState":
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
        state, arrays = cls.start_from(saved.build_model(), config, device), dict(saved.optimizer)
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
    def is_done(self) -> bool:
        """Whether all steps are done, or config.patience evaluations passed without a better."""
        out_of_patience = 0 < self.config.patience <= self.progress.evaluations_since_best
        return out_of_patience or self.progress.step >= self.config.max_iters

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
        progress.val_loss = val_loss
        progress.evaluations_since_best += 1
        if progress.best_val_loss is not None and val_loss >= progress.best_val_loss:
            return False
        progress.best_val_loss, progress.evaluations_since_best = val_loss, 0
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
        self.block_size, self.config, self.device = block_size, config, device
        self.n_starts = len(ids) - block_size
        self.n_windows = (len(ids) - 1) // block_size
        self.epoch, self.starts = -1, np.empty(0, np.int64)
        self.offsets = torch.arange(block_size + 1, device=device)
        # On the CPU the text stays on disk; a GPU holds it in its own memory.
        self.ids = torch.from_numpy(ids if ids.dtype == np.uint8 else ids.view(np.int16))
        self.ids = self.ids.to(device)

    def start(self, index: int) -> int:
        """Return the place in the text at which the run's window `index` (from 0) begins."""
        epoch, place = divmod(index, self.n_windows)
        if epoch != self.epoch:
            random = generator(self.config.seed, Purpose.BATCHES, epoch)
            places = random.permutation(self.n_windows) * self.block_size
            # What a shift moves past the end begins near the beginning.
            shifted = (places + random.integers(self.block_size)) % self.n_starts
            self.epoch, self.starts = epoch, shifted
        return self.starts[place]

    def get(self, step: int, micro_step: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets, each (B, T) int64, of one micro-batch."""
        number = step * self.config.gradient_accumulation_steps + micro_step
        first = number * self.config.batch_size
        starts = torch.tensor([self.start(first + i) for i in range(self.config.batch_size)])
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
    world: World = World(),
    compile: bool = False,
) -> Iterator[Report]:
    """Train until state.config.max_iters steps are done, and report after every step.

    Whenever it yields, `state` stands between two steps and may be saved. Stops early if
    state.config.patience asks for it. All processes of a `world` call it and get the same reports,
    but for the seconds.
    Raises UserError at once for a corpus that is too short or a batch that can't be shared; later
    NonFiniteLoss.
    """
    micro_steps = state.config.gradient_accumulation_steps
    require_length(corpus, state.model.config.block_size)
    if micro_steps % world.size:
        raise UserError(
            f"--gradient_accumulation_steps is {micro_steps}; the processes share them, so it must "
            f"be a multiple of {world.size} (and --batch_size so much smaller)"
        )
    return _Steps(state, corpus, device, world, compile).reports()


class _Steps:
    parallel_map: ParallelMap

    def __init__(
        self, state: TrainingState, corpus: Corpus, device: Device, world: World, compile: bool
    ) -> None:
        config, block_size = state.config, state.model.config.block_size
        self.state, self.corpus, self.device, self.world = state, corpus, device, world
        self.objective: nn.Module = state.objective
        self.compile = compile
        on_cores = device.on_cpu and not compile
        self.threads = min(config.threads, config.batch_size) if on_cores else 1
        self.batches = Batches(corpus.train, block_size, config, device.torch_device)
        self.parameters = list(state.objective.parameters())
        if state.model.config.ngram_size > 1:
            state.model.ngram_embedding.learn_vocabulary(corpus.train)
        self.seconds, self.tokens = 0.0, 0
        """Of the steps since the last report with a train_loss."""

    def reports(self) -> Iterator[Report]:
        objective = self.state.objective.train()
        objective.zero_grad()  # a step that was interrupted has left some
        if self.compile and not self.state.is_done:
            probe = self.batches.get(0, 0)
            self.objective = compiled(objective, lambda fast: self._losses(fast, *probe)[1])
        with thread_pool(self.threads) as self.parallel_map:
            while not self.state.is_done:
                yield self._advance()

    def _advance(self) -> Report:
        state, config, progress = self.state, self.state.config, self.state.progress
        characters = config.characters_per_step(state.model.config)
        begin = time.perf_counter()
        loss = self._step()
        # Only a call can be interrupted: all three lines are done, or none.
        progress.step += 1
        progress.tokens += characters
        state.unread_losses.append(loss)
        is_end = progress.step == config.max_iters
        is_evaluation = is_end or progress.step % config.eval_interval == 0
        is_log = is_evaluation or progress.step % config.log_interval == 0
        if is_log or self.device.on_cpu:
            state.sync_losses()
        self.tokens += characters
        self.seconds += time.perf_counter() - begin
        found: dict[str, Any] = {"tokens_per_second": self.tokens / max(self.seconds, 1e-9)}
        if is_evaluation:
            found |= self._evaluate()
        if is_log:
            found["train_loss"] = sum(progress.recent_losses) / len(progress.recent_losses)
            progress.recent_losses = []
            self.seconds, self.tokens = 0.0, 0
        progress.seconds += time.perf_counter() - begin
        rate = state.optimizers[0].param_groups[0]["lr"]
        step, tokens, seconds = progress.step, progress.tokens, progress.seconds
        return Report(step=step, tokens=tokens, seconds=seconds, lr=rate, **found)

    def _evaluate(self) -> dict[str, Any]:
        state, val, seed = self.state, self.corpus.val, self.state.config.seed
        with self.device.autocast():
            loss = validation_loss(state.model, val, threads=self.threads, world=self.world)
            is_best = state.take_evaluation(loss)
            ids = generate(state.model, val[:1], max_new_tokens=SAMPLE_LENGTH, seed=seed)
            sample = self.corpus.tokenizer.decode([new for (new,) in ids])
        return {"val_loss": loss, "is_best": is_best, "sample": sample}

    def _step(self) -> Tensor:
        config, optimizers, world = self.state.config, self.state.optimizers, self.world
        factor = optim.learning_rate_factor(self.state.progress.step, config)
        optim.set_learning_rate(optimizers, factor)
        step_loss = torch.zeros((), device=self.device.torch_device)
        for micro_step in range(world.rank, config.gradient_accumulation_steps, world.size):
            step_loss += self._add_gradients(micro_step)
        world.sum_gradients(self.parameters)
        world.sum(step_loss)
        # The rows of the n-gram table are left out: their optimizer sets the length of their steps.
        dense = [p for p in self.parameters if p.grad is None or not p.grad.is_sparse]
        norm = torch.nn.utils.clip_grad_norm_(dense, config.grad_clip or math.inf)
        step_loss += 0 * norm
        with self.device.autocast():  # on a GPU Muon's products are in bfloat16, too
            self.parallel_map(lambda optimizer: optimizer.step(), optimizers)
        for optimizer in optimizers:
            optimizer.zero_grad()
        return step_loss

    def _add_gradients(self, micro_step: int) -> Tensor:
        """Add the gradients of one micro-batch; return what it adds to the loss of the step, ().

        Each thread takes some windows; their gradients are added in the order of the windows.
        """

        def gradients(part: int, ids: Tensor, targets: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
            with self._dropout(micro_step, part):
                loss, total = self._losses(self.objective, ids, targets)
            return loss.detach(), torch.autograd.grad(total, self.parameters, allow_unused=True)

        batch = self.batches.get(self.state.progress.step, micro_step)
        parts = [each.tensor_split(self.threads) for each in batch]
        found = self.parallel_map(gradients, range(self.threads), *parts)
        losses, by_thread = zip(*found, strict=True)
        for p, *grads in zip(self.parameters, *by_thread, strict=True):
            if grads[0] is not None:
                total = reduce(torch.add, grads)
                if not total.is_sparse:  # AdamW's kernel reads numbers as they lie in memory
                    total = total.contiguous()
                p.grad = total if p.grad is None else p.grad + total
        return reduce(torch.add, losses)

    def _losses(self, objective: nn.Module, ids: Tensor, targets: Tensor) -> list[Tensor]:
        """Return what windows add to the loss of the step, (), alone and with prediction heads."""
        state, config = self.state, self.state.config
        weight = state.objective.look_ahead_weight(state.progress.step, config.max_iters)
        with self.device.autocast(training=True):
            losses = objective(ids, targets, weight)
        fraction = len(ids) / config.batch_size
        return [loss * fraction / config.gradient_accumulation_steps for loss in losses]

    def _dropout(self, micro_step: int, part: int) -> AbstractContextManager[None]:
        seed, place = self.state.config.seed, (self.state.progress.step, micro_step)
        if self.threads == 1:
            return torch_seed(self.device.torch_device, seed, Purpose.DROPOUT, *place)
        number = seed_of(seed, Purpose.DROPOUT, *place, part)
        return Dropout.drawing_from(torch.Generator().manual_seed(number))
