"""What a run reports after each step and evaluation, and a note if it learns nothing."""

import math
from dataclasses import dataclass, field
from typing import Any

from sancho import optim
from sancho.errors import note
from sancho.run.state import TrainingState

NEAR = 1e-4  # by which rounding may take a loss of chance below ln V
REPORTS_AT_CHANCE = 3  # in a row, after which a note is given


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
class Reporter:
    """Makes the reports of a run."""

    state: TrainingState
    vocab_size: int
    times: list[float] = field(default_factory=list)
    """Seconds of each step since the last report with a train_loss."""
    at_chance: int = 0
    """Number of reports in a row whose loss is no better than chance."""

    def report(self, *, with_losses: bool, **evaluation: Any) -> Report:
        """Return the report of the newest step; with_losses: of the steps since the last one."""
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
        step = self.state.progress.step
        is_warm = step - len(losses) >= self.state.train_config.warmup_iters
        if not (losses and is_warm) or self.at_chance == REPORTS_AT_CHANCE:
            return
        chance = math.log(self.vocab_size)
        is_at_chance = sum(losses) / len(losses) >= chance - NEAR
        self.at_chance = self.at_chance + 1 if is_at_chance else 0
        if self.at_chance == REPORTS_AT_CHANCE:
            note(
                f"at step {step:,} the loss is no better than chance, {chance:.3f}: the model "
                "learns nothing. Begin again with smaller learning rates, or go back to the best "
                "model of the run (--init_from its best checkpoint)"
            )
