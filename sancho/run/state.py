"""The state of a run: model, optimizers, progress; from a checkpoint, and to one."""

import math
from copy import deepcopy
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from sancho import optim
from sancho.checkpoint import Checkpoint, Progress
from sancho.config import ModelConfig, TrainConfig
from sancho.errors import UserError
from sancho.implementation import model_proof
from sancho.loss import Objective
from sancho.machine.device import Device, torch_seed
from sancho.machine.seeds import Purpose
from sancho.machine.threads import cores
from sancho.model import GPT
from sancho.shared.weights import weight_shapes
from sancho.text.corpus import Corpus


class NonFiniteLoss(UserError):
    """The loss, the gradient or the weights became infinite or not a number, at a step (from 1)."""

    def __init__(self, step: int) -> None:
        super().__init__(
            f"the loss or its gradient is not a finite number at step {step}; nothing after the "
            "last checkpoint was kept. Try smaller learning rates or more --warmup_iters"
        )


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
            advice = "name the weights of the model in sancho/shared/weights.py"
            raise UserError(
                "sancho/model.py and sancho/shared/weights.py list different weights: "
                f"{unknown}; {advice}"
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
