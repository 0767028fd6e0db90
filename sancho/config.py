"""The options of model, training and sampling: default, range and help of each, once.

The command lines are made from these classes. Making one with a value out of range raises
UserError. What only one script takes stands in that script.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import NoneType
from typing import Annotated, Literal, TypeVar, get_args, get_origin

from sancho.errors import UserError

Config = TypeVar("Config")
UnknownPolicy = Literal["error", "skip", "nearest"]
PresetName = Literal["auto", "mini", "midi", "classic", "base"]
DeviceName = Literal["auto", "cpu", "cuda", "mps"]
DType = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True)
class Range:
    """The finite numbers from `lowest` to `highest`; it prints as the rule of an error line."""

    lowest: float
    highest: float = sys.float_info.max

    def __contains__(self, value: float) -> bool:
        return self.lowest <= value <= self.highest

    def __str__(self) -> str:
        if self.highest == sys.float_info.max:
            return f"finite and at least {self.lowest}"
        return f"at least {self.lowest} and at most {self.highest}"


# Some upper ends only keep a mistyped or forged number from taking all memory.
Count = Annotated[int, Range(1, 2**31 - 1)]
CountOrZero = Annotated[int, Range(0, 2**31 - 1)]
Size = Annotated[int, Range(1, 65536)]
SEEDS = Range(0, 2**128 - 1)
Seed = Annotated[int, SEEDS]
FractionBelowOne = Annotated[float, Range(0, 0.99999)]
Rate = Annotated[float, Range(0, 1e30)]
Scale = Annotated[float, Range(1e-3, 1e3)]


@dataclass(frozen=True, kw_only=True)
class Checked:
    """Options whose values are among their choices, or in their range, or making them fails."""

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            for kind in (option.type, *get_args(option.type)):  # itself, or None
                if get_origin(kind) is Literal:
                    choices = get_args(kind)
                    self._require(value in choices, option.name, f"one of {', '.join(choices)}")
                elif get_origin(kind) is Annotated and value is not None:
                    numbers = get_args(kind)[1]
                    self._require(value in numbers, option.name, numbers)

    def _require(self, condition: bool, name: str, rule: object) -> None:
        if not condition:
            raise UserError(f"--{name} is {getattr(self, name)!r}; it must be {rule}")


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Checked):
    """The shape of a GPT; as it stands, that of mini."""

    vocab_size: Size = 92
    """Number of different characters. The corpus decides it (92 in Don Quijote)."""
    block_size: Size = 256
    """Longest context, in characters."""
    n_layer: Annotated[int, Range(1, 1000)] = 4
    """Number of blocks."""
    n_head: Size = 2
    """Number of attention heads in a block; divides n_embd."""
    n_embd: Size = 64
    """Width: channels of the residual stream."""
    dropout: FractionBelowOne = 0.0
    """Fraction of activations dropped in training."""
    bias: bool = False
    """Biases in the linear layers and in LayerNorm."""
    norm: Literal["layernorm", "rmsnorm"] = "rmsnorm"
    """Normalisation before attention, feed-forward and output head. rmsnorm learns no gain."""
    position: Literal["learned", "sinusoidal", "rope"] = "rope"
    """How the model knows the order of the characters."""
    activation: Literal["relu", "gelu", "silu", "relu2", "geglu", "swiglu"] = "relu2"
    """Activation of the feed-forward layer; relu2 is the square of relu."""
    ngram_size: Annotated[int, Range(1, 16)] = 5
    """Character n-gram embedding: of n-grams of 2 to this many characters; 1: none."""
    ngram_rows: Count = 65536
    """Rows of the n-gram table: one for each of the most frequent n-grams, one for all others."""
    ngram_dropout: FractionBelowOne = 0.0
    """Fraction of its vectors dropped in training."""
    embedding_skip: bool = True
    """Learned skip connection from the embedding to every later block."""
    qk_norm: bool = True
    """Normalise queries and keys before their product."""
    tie_embeddings: bool = False
    """Use one matrix for the character embedding and the output head."""

    def __post_init__(self) -> None:
        super().__post_init__()
        size = self.n_layer * self.block_size * self.n_embd
        self._require(size <= 2**28, "block_size", "at most 2^28 / (n_layer · n_embd)")
        if self.ngram_size > 1:
            size = self.ngram_rows * self.n_embd
            self._require(size <= 2**31, "ngram_rows", "at most 2^31 / n_embd")
        rule = f"a divisor of n_embd, which is {self.n_embd}"
        self._require(self.n_embd % self.n_head == 0, "n_head", rule)
        if self.position == "rope":
            rule = f"such that n_embd / n_head is even for rope (it is {self.head_size})"
            self._require(self.head_size % 2 == 0, "n_head", rule)
        if self.position == "sinusoidal":
            self._require(self.n_embd % 2 == 0, "n_embd", "even for sinusoidal positions")

    @property
    def head_size(self) -> int:
        """Channels of one attention head."""
        return self.n_embd // self.n_head

    @property
    def is_gated(self) -> bool:
        """Whether the activation multiplies one expansion by another (GEGLU, SwiGLU)."""
        return self.activation in ("geglu", "swiglu")

    @property
    def hidden_size(self) -> int:
        """Units of the feed-forward layer: 4C; gated ones have 8C/3, for as many parameters."""
        return 8 * self.n_embd // 3 if self.is_gated else 4 * self.n_embd


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Checked):
    """How a model is trained; as it stands, as mini is."""

    max_iters: Count = 1700
    """Number of optimizer steps."""
    batch_size: Size = 8
    """Windows of block_size characters in a (micro-)batch."""
    gradient_accumulation_steps: Count = 1
    """Micro-batches whose gradients are averaged into one step."""
    optimizer: Literal["muon", "adamw"] = "muon"
    """muon: Muon for the matrices inside the blocks, AdamW for the rest. adamw: AdamW for all."""
    learning_rate: Rate = 0.02
    """Peak learning rate of AdamW."""
    muon_learning_rate: Rate = 0.015
    """Peak learning rate of Muon."""
    ngram_learning_rate: Rate = 0.15
    """Peak learning rate of the n-gram table (row-wise Adagrad)."""
    weight_decay: Annotated[float, Range(0, 1e6)] = 0.0
    """Decoupled weight decay of the matrices, but not of the n-gram table."""
    beta1: FractionBelowOne = 0.8
    """AdamW: decay of the mean of the gradients."""
    beta2: FractionBelowOne = 0.98
    """AdamW: decay of the mean of their squares."""
    grad_clip: Annotated[float, Range(0)] = 1.0
    """Largest norm of the gradient; 0 switches clipping off."""
    warmup_iters: CountOrZero = 20
    """Steps in which the learning rate rises to its peak."""
    look_ahead: Annotated[int, Range(0, 16)] = 2
    """Auxiliary multi-token-prediction heads, in training only; 0: none."""
    logit_scale: Scale = 1.0
    """Factor of the logits in the training loss."""
    decay_fraction: Annotated[float, Range(0, 1)] = 0.6
    """Fraction of the steps, at the end, in which the learning rate falls linearly to zero."""
    eval_interval: Count = 850
    """Steps between evaluations."""
    log_interval: Count = 10
    """Steps between lines in metrics.jsonl and updates of the progress bar."""
    patience: CountOrZero = 0
    """Stop after this many evaluations without a better validation loss; 0: never."""
    seed: Seed = 1605
    """Decides initial weights, batches and dropout."""
    threads: Annotated[int, Range(0, 1024)] = 0
    """Threads of a CPU, each of which computes some windows of a batch; 0: one for each core, and
    not more than windows. A run that goes on keeps its number, and so its bits."""
    preset: PresetName = "mini"
    """Whose options these are, but for some."""
    compile: bool = False
    """Compile the model with torch.compile; it takes a minute or more before the first step."""
    tensorboard: bool = False
    """Write event files for TensorBoard too, into out_dir/tensorboard."""

    def characters_per_step(self, model: ModelConfig) -> int:
        """Return how many characters an optimizer step reads."""
        return model.block_size * self.batch_size * self.gradient_accumulation_steps


@dataclass(frozen=True, kw_only=True)
class SampleConfig(Checked):
    """How the next character is chosen."""

    temperature: Annotated[float, Range(0)] = 1.0
    """Below 1 likely characters become likelier, above 1 less so; 0 always takes the likeliest."""
    top_k: Annotated[int | None, Range(1)] = None
    """Keep only the k likeliest characters."""
    top_p: Annotated[float | None, Range(0, 1)] = None
    """Keep the likeliest characters that together reach this probability."""
    min_p: Annotated[float | None, Range(0, 1)] = None
    """Drop characters less likely than this number times the likeliest one."""


DEFAULT_SAMPLING = SampleConfig(min_p=0.1)
"""How a text is written where nothing is said (benchmarks/README.md)."""


@dataclass(frozen=True, kw_only=True)
class DeviceConfig(Checked):
    """Where the model computes."""

    device: DeviceName = "auto"
    """auto: a CUDA GPU where there is one; but sample.py writes on the CPU."""
    dtype: DType = "auto"
    """Type of the matrix products; auto: bfloat16 where the hardware has it. A CPU trains in it and
    writes in float32."""


@dataclass(frozen=True, kw_only=True)
class FolderConfig(Checked):
    """Where a run is kept, and what it begins with."""

    out_dir: Path = Path("out")
    """Folder for checkpoints and metrics."""
    resume: bool = False
    """Go on with the run in out_dir, with its options; where there is none, begin one."""
    overwrite: bool = False
    """Replace the run in out_dir."""
    init_from: Path | None = None
    """Begin with the weights of this checkpoint, at lower learning rates; pretrained: ours."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require(not (self.resume and self.overwrite), "resume", "left out with --overwrite")
        is_of_nanogpt = str(self.init_from) in ("scratch", "resume")
        rule = "a checkpoint; a new run needs no --init_from, and --resume goes on with one"
        self._require(not is_of_nanogpt, "init_from", rule)


@dataclass(frozen=True, kw_only=True)
class TextConfig(Checked):
    """A text: one that is prepared, or a file."""

    dataset: str | None = None
    """A prepared folder under data/."""
    corpus: Path | None = None
    """A text file of your own instead."""
    encoding: str = "UTF-8"
    """The encoding of that file, as windows-1252 or UTF-16."""

    def __post_init__(self) -> None:
        super().__post_init__()
        is_used = self.corpus is not None or self.encoding == "UTF-8"
        self._require(is_used, "encoding", "left out, or the file be named with --corpus")


@dataclass(frozen=True, kw_only=True)
class CorpusConfig(TextConfig):
    """The text to learn from."""

    dataset: str = "quijote"
    """A prepared folder under data/; quijote and shakespeare are fetched if missing."""
    corpus: Path | None = None
    """A text file of your own instead, prepared on the way in a folder of its own."""


@dataclass(frozen=True, kw_only=True)
class AskedConfig(Checked):
    """What the length of the text decides where you say nothing (auto)."""

    max_iters: Count | None = None
    """Number of optimizer steps; auto: the preset's, or fewer for a short text."""
    eval_interval: Count | None = None
    """Steps between evaluations; auto: so many that they take a fifth of a run at most."""
    dropout: FractionBelowOne | None = None
    """Fraction of activations dropped in training; auto: the preset's, or none in fine-tuning."""
    ngram_dropout: FractionBelowOne | None = None
    """Fraction of vectors of the n-gram table dropped in training; auto: more where a text is read
    more often."""
    logit_scale: Scale | None = None
    """Factor of the logits in the training loss; auto: more where a text is read more often."""


@dataclass(frozen=True, kw_only=True)
class BeginOptions(Checked):
    """What is read of a command line first: it decides the defaults of all other options."""

    preset: PresetName = "auto"
    """Model and training: mini, midi (8 to 13 minutes), base (a GPU), classic (the course's)."""
    folder: FolderConfig = field(default_factory=FolderConfig)
    device: DeviceConfig = field(default_factory=DeviceConfig)


@dataclass(frozen=True, kw_only=True)
class TrainOptions(BeginOptions):
    """Train a GPT on Don Quijote, or on a text of your own, and read what it writes."""

    data: CorpusConfig = field(default_factory=CorpusConfig)
    asked: AskedConfig = field(default_factory=AskedConfig)
    """The same options as in `model` and `train`, which have the preset's values: here is what was
    typed, or None."""
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)


@dataclass(frozen=True, kw_only=True)
class CheckpointOption(Checked):
    """The option of every command that begins with a trained model."""

    checkpoint: Path | None = None
    """The checkpoint to load, or the folder of a run, whose best it is; pretrained: the model that
    comes with the project (default: out; where that has no run, pretrained)."""


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(TextConfig, CheckpointOption):
    """Say what a trained model is worth: its loss, and the text that it writes."""

    dataset: str | None = None
    """A prepared folder under data/, whose validation part is read (default: the one that the model
    learned from)."""
    corpus: Path | None = None
    """A text file of your own instead, or a folder of them: all of it is read, and nothing written
    to disk."""
    json: bool = False
    """Write JSON instead of the report."""
    device: DeviceConfig = field(default_factory=DeviceConfig)


EVALUATED = 1_000_000
"""Characters of the validation part that an evaluation reads at most."""


def with_values(config: Config, values: Mapping[str, object]) -> Config:
    """Return a dataclass with other values for those of its fields that `values` names."""
    own = {name: value for name, value in values.items() if name in vars(config)}
    return replace(config, **own)  # type: ignore[type-var]


def from_dict(cls: type[Config], values: object) -> Config:
    """Return a dataclass made from what a JSON file holds.

    Raises ValueError for an unknown name and for a value out of range or of another type than the
    default (where that is None: neither a number nor None).
    """
    if not isinstance(values, dict):
        raise ValueError(f"{cls.__name__} is not an object")
    defaults = vars(cls())
    for name, value in values.items():
        if name not in defaults:
            raise ValueError(f"unknown option {name!r}")
        kinds = {type(defaults[name])}
        if kinds & {float, NoneType}:
            kinds |= {float, int}
        if type(value) not in kinds:
            raise ValueError(f"{name} is of the wrong type: {value!r}")
    return cls(**values)
