"""Every option of training and sampling: its default, its range and its help, once.

The command lines are made from these classes, and so are the notebooks' calls. Making one with a
value out of range raises UserError. The options of an export stand with it, in convert/.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from sancho.errors import UserError

Config = TypeVar("Config")
UnknownPolicy = Literal["error", "skip", "nearest"]
PresetName = Literal["auto", "mini", "classic", "base"]


@dataclass(frozen=True)
class Range:
    """The numbers from `lowest` to `highest`; it prints as the rule of an error line."""

    lowest: float
    """The lower end."""
    highest: float = math.inf
    """The upper end."""
    open_at: tuple[float, ...] = (math.inf,)
    """Ends that are left out."""

    def __contains__(self, value: float) -> bool:
        return self.lowest <= value <= self.highest and value not in self.open_at

    def __str__(self) -> str:
        above = "more than" if self.lowest in self.open_at else "at least"
        if self.highest == math.inf:
            return f"finite and {above} {self.lowest}"
        below = "less than" if self.highest in self.open_at else "at most"
        return f"{above} {self.lowest} and {below} {self.highest}"


# Some upper ends only keep a mistyped or forged number from taking all memory.
_RANGES = (
    (Range(1), "top_k"),
    (Range(1, 16), "ngram_size"),
    (Range(1, 1000), "n_layer"),
    (Range(1, 10_000), "num_samples"),
    (Range(1, 65536), "vocab_size block_size n_head n_embd"),
    (Range(1, 2**31 - 1), "ngram_rows batch_size gradient_accumulation_steps"),
    (Range(1, 2**31 - 1), "max_iters eval_interval log_interval"),
    (Range(0), "temperature grad_clip max_new_tokens"),
    (Range(0, 16), "look_ahead"),
    (Range(0, 1024), "threads"),
    (Range(0, 1e6), "weight_decay"),
    (Range(0, 2**31 - 1), "warmup_iters patience"),
    (Range(0, 2**128 - 1), "seed"),
    (Range(0, 1), "decay_fraction top_p min_p"),
    (Range(0, 1, open_at=(1,)), "dropout ngram_dropout beta1 beta2"),
    (Range(0, 1e30, open_at=(0,)), "learning_rate muon_learning_rate ngram_learning_rate"),
    (Range(0, open_at=(0, math.inf)), "repetition_penalty"),
)
RANGES = {name: numbers for numbers, names in _RANGES for name in names.split()}
"""What a number may be, by its option."""


@dataclass(frozen=True, kw_only=True)
class Checked:
    """Options whose values are among their choices, or in RANGES, or making them fails."""

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            if get_origin(option.type) is Literal:
                choices = get_args(option.type)
                self._require(value in choices, option.name, f"one of {', '.join(choices)}")
            elif option.name in RANGES and value is not None:
                self._require(value in RANGES[option.name], option.name, RANGES[option.name])

    def _require(self, condition: bool, name: str, rule: object) -> None:
        """Raise UserError unless `condition` holds."""
        if not condition:
            raise UserError(f"--{name} is {getattr(self, name)!r}; it must be {rule}")


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Checked):
    """The shape of a GPT."""

    vocab_size: int = 92
    """Number of different characters. The corpus decides it (92 in Don Quijote)."""
    block_size: int = 256
    """Longest context, in characters."""
    n_layer: int = 4
    """Number of blocks."""
    n_head: int = 2
    """Number of attention heads in a block; divides n_embd."""
    n_embd: int = 64
    """Width: channels of the residual stream."""
    dropout: float = 0.0
    """Fraction of activations dropped in training."""
    bias: bool = False
    """Biases in the linear layers and in LayerNorm."""
    norm: Literal["layernorm", "rmsnorm"] = "rmsnorm"
    """Normalisation before attention, feed-forward and output head. rmsnorm learns no gain."""
    position: Literal["learned", "sinusoidal", "rope"] = "rope"
    """How the model knows the order of the characters."""
    activation: Literal["relu", "gelu", "silu", "relu2", "geglu", "swiglu"] = "relu2"
    """Activation of the feed-forward layer; relu2 is the square of relu."""
    ngram_size: int = 1
    """Hashed character n-gram embedding: of n-grams of 2 to this many characters; 1: none."""
    ngram_rows: int = 65536
    """Rows of the n-gram table; n-grams with the same hash share a row."""
    ngram_dropout: float = 0.0
    """Fraction of its vectors dropped in training; follows the text's length, if you don't say."""
    embedding_skip: bool = False
    """Learned skip connection from the embedding to every later block."""
    qk_norm: bool = True
    """Normalise queries and keys before their product."""
    tie_embeddings: bool = False
    """Use one matrix for the character embedding and the output head."""

    def __post_init__(self) -> None:
        super().__post_init__()
        size = self.n_layer * self.block_size * self.n_embd
        self._require(size <= 2**28, "block_size", "at most 2^28 / (n_layer · n_embd)")
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
    """How a model is trained."""

    max_iters: int = 1800
    """Number of optimizer steps; fewer for a short text, if you don't say how many."""
    batch_size: int = 6
    """Windows of block_size characters in a (micro-)batch."""
    gradient_accumulation_steps: int = 1
    """Micro-batches whose gradients are averaged into one step."""
    optimizer: Literal["muon", "adamw"] = "muon"
    """muon: Muon for the matrices inside the blocks, AdamW for the rest. adamw: AdamW for all."""
    learning_rate: float = 0.02
    """Peak learning rate of AdamW."""
    muon_learning_rate: float = 0.015
    """Peak learning rate of Muon."""
    ngram_learning_rate: float = 0.15
    """Peak learning rate of the n-gram table (row-wise Adagrad)."""
    weight_decay: float = 0.0
    """Decoupled weight decay of the matrices, but not of the n-gram table."""
    beta1: float = 0.8
    """AdamW: decay of the mean of the gradients."""
    beta2: float = 0.95
    """AdamW: decay of the mean of their squares."""
    grad_clip: float = 1.0
    """Largest norm of the gradient; 0 switches clipping off."""
    warmup_iters: int = 20
    """Steps in which the learning rate rises to its peak."""
    look_ahead: int = 0
    """Auxiliary multi-token-prediction heads, in training only; 0: none."""
    decay_fraction: float = 0.6
    """Fraction of the steps, at the end, in which the learning rate falls linearly to zero."""
    eval_interval: int = 900
    """Steps between evaluations on all validation text; follows its length, if you don't say."""
    log_interval: int = 10
    """Steps between lines in metrics.jsonl and updates of the progress bar."""
    patience: int = 0
    """Stop after this many evaluations without a better validation loss; 0: never."""
    seed: int = 1605
    """Decides initial weights, batches and dropout."""
    threads: int = 0
    """Threads of a CPU, each of which computes some windows of a batch; 0: one for each core, and
    not more than windows. A run that goes on keeps its number, and so its bits."""

    def characters_per_step(self, model: ModelConfig) -> int:
        """Return how many characters an optimizer step reads."""
        return model.block_size * self.batch_size * self.gradient_accumulation_steps


@dataclass(frozen=True, kw_only=True)
class SampleConfig(Checked):
    """How the next character is chosen; as it stands, by the model's own probabilities."""

    temperature: float = 1.0
    """Below 1 likely characters become likelier, above 1 less so; 0 always takes the likeliest."""
    top_k: int | None = None
    """Keep only the k likeliest characters."""
    top_p: float | None = None
    """Keep the likeliest characters that together reach this probability."""
    min_p: float | None = None
    """Drop characters less likely than this number times the likeliest one."""
    repetition_penalty: float = 1.0
    """Above 1 makes characters of the context less likely."""


DEFAULT_SAMPLING = SampleConfig(min_p=0.1)
"""How a text is written where nothing is said (docs/measurements.md)."""


@dataclass(frozen=True, kw_only=True)
class DeviceConfig(Checked):
    """Where the model computes."""

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """auto: train.py takes a CUDA GPU where there is one; sample.py takes the CPU, or CUDA for more
    than 15 million parameters."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Type of the matrix products; auto is bfloat16 on a CUDA GPU that has it, else float32."""


@dataclass(frozen=True, kw_only=True)
class RunConfig(Checked):
    """Which run: where it is kept and what it starts from."""

    preset: PresetName = "auto"
    """A model and its training: mini for a CPU, base for a CUDA GPU, classic as in the course."""
    out_dir: Path = Path("out")
    """Folder for checkpoints and metrics."""
    resume: bool = False
    """Go on with the run in out_dir, with the options it had unless you give others."""
    overwrite: bool = False
    """Replace the run in out_dir."""
    tensorboard: bool = False
    """Write event files for TensorBoard too, into out_dir/tensorboard."""
    init_from: Path | None = None
    """Start a new run from the weights of this checkpoint, at lower learning rates; pretrained is
    the one that comes with the project."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resume and (self.overwrite or self.init_from):
            other = "--overwrite" if self.overwrite else "--init_from"
            raise UserError(f"--resume and {other} exclude each other; give one of them")


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """The text to learn from."""

    dataset: str = "quijote"
    """A prepared folder under data/; quijote is fetched if it is missing."""
    corpus: Path | None = None
    """A text file of your own instead, prepared on the way as data/NAME, NAME being its name."""
    encoding: str = "UTF-8"
    """The encoding of that file, as windows-1252 or UTF-16."""

    def __post_init__(self) -> None:
        if self.encoding != "UTF-8" and self.corpus is None:
            raise UserError(
                f"--encoding {self.encoding} needs --corpus: a prepared text is in UTF-8; leave it "
                "out, or name the file"
            )


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Train a GPT on Don Quijote, or on a text of your own, and read what it writes."""

    run: RunConfig = field(default_factory=RunConfig)
    data: CorpusConfig = field(default_factory=CorpusConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    device: DeviceConfig = field(default_factory=DeviceConfig)
    compile: bool = False
    """Compile the model with torch.compile (for a GPU and long runs)."""


@dataclass(frozen=True, kw_only=True)
class CheckpointOption(Checked):
    """What all have that begin with a trained model."""

    checkpoint: Path | None = None
    """The checkpoint to load (default: out/best.safetensors; where that is missing, the sancho that
    comes with the project)."""


@dataclass(frozen=True, kw_only=True)
class SampleOptions(CheckpointOption):
    """Let a trained model go on with a text. The text goes to stdout, all else to stderr."""

    start: str = "\n"
    """The text to go on with; FILE:path takes it from a file, - from standard input."""
    num_samples: int = 1
    """How many continuations."""
    max_new_tokens: int = 500
    """Most characters in each continuation."""
    stop: tuple[str, ...] = ()
    """End before any of these texts."""
    unknown: UnknownPolicy = "error"
    """What to do with characters of the start that the model has never seen."""
    seed: int = 1605
    """The same seed gives the same text."""
    sampling: SampleConfig = DEFAULT_SAMPLING
    device: DeviceConfig = field(default_factory=DeviceConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("" not in self.stop, "stop", "texts of one character or more")


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(CheckpointOption):
    """Say what a trained model is worth: its loss, and the text that it writes."""

    dataset: str | None = None
    """A prepared folder under data/ (default: the one that the model learned from)."""
    json: bool = False
    """Write JSON instead of the report."""
    device: DeviceConfig = field(default_factory=DeviceConfig)


def with_given(options: Any, given: Mapping[str, object]) -> Any:
    """Return a dataclass, and those in it, with what is given for their fields, by name.

    Other names are for others. Raises UserError for a value out of range.
    """
    changes = {}
    for option in fields(options):
        value = getattr(options, option.name)
        if is_dataclass(value):
            changes[option.name] = with_given(value, given)
        elif option.name in given:
            changes[option.name] = given[option.name]
    return replace(options, **changes)


def from_dict(cls: type[Config], values: object) -> Config:
    """Return a dataclass made from what a JSON file holds.

    Raises ValueError for anything but an object, an unknown name, a value of the wrong type or out
    of range.
    """
    if not isinstance(values, dict):
        raise ValueError(f"{cls.__name__} is not an object")
    kinds = get_type_hints(cls)
    for name, value in values.items():
        if name not in kinds:
            raise ValueError(f"unknown option {name!r}")
        if not _fits(value, kinds[name]):
            raise ValueError(f"{name} is of the wrong type: {value!r}")
    return cls(**values)


def _fits(value: object, kind: object) -> bool:
    """Return whether a JSON value is of a type such as the fields above have."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        return type(value) is type(parts[0])
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is list:
        return isinstance(value, list) and all(_fits(item, parts[0]) for item in value)
    if type(value) is int:  # of a size that can be computed with
        return kind in (int, float) and abs(value) < 2**128
    return type(value) is kind
