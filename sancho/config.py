"""The options of the model, of training and of sampling: the default, range and help of each.

The scripts make their command lines from these classes. A value out of range raises UserError as
soon as the object is made. An option that only one script has is defined in that script.
"""

import sys
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from sancho.errors import UserError

Config = TypeVar("Config")
UnknownPolicy = Literal["error", "skip", "nearest"]
DeviceName = Literal["auto", "cpu", "cuda", "mps"]
DType = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True)
class Range:
    """The finite numbers from `lowest` to `highest`, and None, where an option may have no value.

    str() gives the rule for an error line.
    """

    lowest: float
    highest: float = sys.float_info.max

    def __contains__(self, value: float | None) -> bool:
        return value is None or self.lowest <= value <= self.highest

    def __str__(self) -> str:
        if self.highest == sys.float_info.max:
            return f"finite and at least {self.lowest}"
        return f"at least {self.lowest} and at most {self.highest}"


@dataclass(frozen=True)
class Choices:
    """Words to choose from; str() gives the rule for an error line."""

    meanings: Mapping[str, str]
    """Each word, and in a few words what it stands for."""

    def __contains__(self, value: str) -> bool:
        # A value from a file may be a list, which no dictionary can look up.
        return value in tuple(self.meanings)

    def __str__(self) -> str:
        return f"one of {', '.join(self.meanings)}"

    @property
    def sentence(self) -> str:
        """The words with their meanings, for --help."""
        return "; ".join(f"{word}: {meaning}" for word, meaning in self.meanings.items()) + "."


# Some upper limits are only there so that a mistyped or forged number can't fill the memory.
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
    """Options that raise UserError for a value that is no choice of theirs, or out of their
    range."""

    def __post_init__(self) -> None:
        for option in fields(self):
            require_fit(option, getattr(self, option.name))

    def _require(self, condition: bool, name: str, rule: object) -> None:
        if not condition:
            raise UserError(f"--{name} is {getattr(self, name)!r}; it must be {rule}")


def require_fit(option: Field[Any], value: Any) -> None:
    """Raise UserError for a value that is no choice of an option, or out of its range."""
    kind = get_origin(option.type)
    if kind is Literal:
        rule: Any = Choices(dict.fromkeys(get_args(option.type), ""))
    elif kind is Annotated:
        rule = get_args(option.type)[1]
    else:
        return
    if value not in rule:
        raise UserError(f"--{option.name} is {value!r}; it must be {rule}")


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Checked):
    """The shape of the model.

    The defaults of this class are those of the preset mini.
    """

    vocab_size: Size = 92
    """Number of different characters, which the corpus decides (92 in Don Quijote)."""
    block_size: Size = 256
    """Longest context, in characters."""
    n_layer: Annotated[int, Range(1, 1000)] = 4
    """Number of transformer blocks."""
    n_head: Size = 2
    """Number of attention heads in each block; n_embd must be a multiple of it."""
    n_embd: Size = 64
    """Width of the model: the number of channels of the residual stream."""
    dropout: FractionBelowOne = 0.0
    """Fraction of activations dropped in training; auto takes the preset's value, or 0 for a short
    fine-tuning."""
    bias: bool = False
    """Use biases in the linear layers and in LayerNorm."""
    norm: Literal["layernorm", "rmsnorm"] = "rmsnorm"
    """Normalisation before attention, feed-forward and output head; rmsnorm has no learned gain."""
    position: Literal["learned", "sinusoidal", "rope"] = "rope"
    """Position encoding, which tells the model the order of the characters."""
    activation: Literal["relu", "gelu", "silu", "relu2", "geglu", "swiglu"] = "relu2"
    """Activation function of the feed-forward layers; relu2 is the square of relu."""
    ngram_size: Annotated[int, Range(1, 16)] = 5
    """Length of the longest n-grams that have embeddings, from 2 characters up; 1 means no
    n-grams."""
    ngram_rows: Count = 65536
    """Rows of the n-gram table: one for each of the most frequent n-grams, and one that all others
    share."""
    ngram_dropout: FractionBelowOne = 0.0
    """Fraction of the n-gram table's vectors dropped in training; auto makes it larger the more
    often the text is read."""
    embedding_skip: bool = True
    """Add the embedding, times a learned factor, to the input of every block after the first."""
    qk_norm: bool = True
    """Normalise queries and keys before they are multiplied in attention."""
    tie_embeddings: bool = False
    """Use the same matrix for the character embedding and for the output head."""

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
    """How the model is trained.

    The defaults of this class are those of the preset mini.
    """

    max_iters: Count = 1700
    """Number of optimizer steps; auto takes the preset's number, or fewer for a short text."""
    batch_size: Size = 8
    """Number of windows in a (micro-)batch, each of block_size characters."""
    gradient_accumulation_steps: Count = 1
    """Number of micro-batches whose gradients are averaged in one step."""
    optimizer: Literal["muon", "adamw"] = "muon"
    """Optimizer: muon trains the matrices inside the blocks with Muon and the rest with AdamW;
    adamw trains both with AdamW. The n-gram table has an optimizer of its own."""
    learning_rate: Rate = 0.02
    """Peak learning rate of AdamW."""
    muon_learning_rate: Rate = 0.015
    """Peak learning rate of Muon."""
    ngram_learning_rate: Rate = 0.15
    """Peak learning rate of the n-gram table (row-wise Adagrad)."""
    weight_decay: Annotated[float, Range(0, 1e6)] = 0.0
    """Decoupled weight decay of all matrices except the n-gram table."""
    beta1: FractionBelowOne = 0.8
    """Decay rate of AdamW's running mean of the gradients."""
    beta2: FractionBelowOne = 0.98
    """Decay rate of AdamW's running mean of the squared gradients."""
    grad_clip: Annotated[float, Range(0)] = 1.0
    """Norm to which a larger gradient is clipped; 0 turns clipping off."""
    warmup_iters: CountOrZero = 20
    """Number of steps over which the learning rate rises to its peak."""
    look_ahead: Annotated[int, Range(0, 16)] = 2
    """Number of extra output heads that predict characters further ahead, in training only
    (multi-token prediction); 0 means none."""
    logit_scale: Scale = 1.0
    """Factor by which the logits are multiplied in the training loss; auto makes it larger the more
    often the text is read."""
    decay_fraction: Annotated[float, Range(0, 1)] = 0.6
    """Fraction of the steps, at the end of the run, over which the learning rate falls linearly to
    zero."""
    eval_interval: Count = 850
    """Number of steps between evaluations; auto makes them take a fifth of the run at most."""
    log_interval: Count = 10
    """Number of steps between lines in metrics.jsonl and updates of the progress bar."""
    patience: CountOrZero = 0
    """Stop after this many evaluations without a better validation loss; 0 means never."""
    seed: Seed = 1605
    """Seed of the random numbers for the initial weights, the batches and dropout."""
    threads: Annotated[int, Range(0, 1024)] = 0
    """Number of CPU threads, which share the windows of a batch; 0 means one for each core, but no
    more than there are windows. A resumed run keeps its number, so that its results stay the same
    to the bit."""
    preset: str = "mini"
    """Name of the preset from which all options come that were not given."""
    compile: bool = False
    """Compile the model with torch.compile, which takes a minute or more before the first step."""
    tensorboard: bool = False
    """Also write event files for TensorBoard, in out_dir/tensorboard."""

    def characters_per_step(self, model: ModelConfig) -> int:
        """Return how many characters an optimizer step reads."""
        return model.block_size * self.batch_size * self.gradient_accumulation_steps


@dataclass(frozen=True, kw_only=True)
class SampleConfig(Checked):
    """How the next character is chosen."""

    temperature: Annotated[float, Range(0)] = 1.0
    """Values below 1 make likely characters likelier, and values above 1 make them less likely; 0
    always takes the likeliest character."""
    top_k: Annotated[int | None, Range(1)] = None
    """Choose only among this many of the likeliest characters."""
    top_p: Annotated[float | None, Range(0, 1)] = None
    """Choose only among the likeliest characters that together reach this probability."""
    min_p: Annotated[float | None, Range(0, 1)] = None
    """Leave out characters whose probability is below this fraction of the likeliest one's."""


# At temperature 1 the model writes as many different words as Cervantes (275 for 272 in 3,000
# characters), and without what is less than a tenth as likely as the likeliest, 98 % of its words
# occur in the book.
DEFAULT_SAMPLING = SampleConfig(min_p=0.1)
"""The sampling options by default, chosen by measurement (benchmarks/diary.md)."""


@dataclass(frozen=True, kw_only=True)
class DeviceConfig(Checked):
    """Where the model runs."""

    device: DeviceName = "auto"
    """Device to run on; auto takes a CUDA GPU if there is one, but sample.py then writes on the
    CPU."""
    dtype: DType = "auto"
    """Number type of the matrix products; auto takes bfloat16 if the hardware has it, otherwise
    float32. A CPU uses bfloat16 for training only: it evaluates and writes in float32."""


@dataclass(frozen=True, kw_only=True)
class FolderConfig(Checked):
    """The folder of the run, and what the run starts from."""

    out_dir: Path = Path("out")
    """Folder for the checkpoints and metrics of the run."""
    resume: bool = False
    """Continue the run in out_dir with its own options; if there is none, start a new run."""
    overwrite: bool = False
    """Replace the run in out_dir."""
    init_from: Path | None = None
    """Start a new run from the weights of this checkpoint, at lower learning rates (fine-tuning);
    pretrained means the model that comes with the project."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require(
            not (self.resume and self.overwrite), "resume", "left out when --overwrite is given"
        )
        is_of_nanogpt = str(self.init_from) in ("scratch", "resume")
        rule = "a checkpoint; a new run needs no --init_from, and --resume continues a run"
        self._require(not is_of_nanogpt, "init_from", rule)


@dataclass(frozen=True, kw_only=True)
class CorpusConfig(Checked):
    """The text to learn from."""

    corpus: tuple[str, ...] = ()
    """The text: quijote or shakespeare, which are downloaded once; the name of another text in
    data/; a file, a folder of .txt files or a pattern; or several of these, in this order (default:
    quijote; a run that goes on keeps its text)."""
    encoding: str = "UTF-8"
    """Encoding of the files of --corpus, such as windows-1252 or UTF-16."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("" not in self.corpus, "corpus", "names or paths, none of them empty")
        is_used = self.corpus != () or self.encoding == "UTF-8"
        self._require(is_used, "encoding", "left out unless --corpus names a file")


@dataclass(frozen=True, kw_only=True)
class CheckpointOption(Checked):
    """The option that every command for a trained model has."""

    checkpoint: Path | None = None
    """The checkpoint to load, or the folder of a run, which means its best checkpoint; pretrained
    means the model that comes with the project (default: out, or pretrained if out has no run)."""


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(CorpusConfig, CheckpointOption):
    """Measure how good a trained model is: its loss, and the text that it writes."""

    corpus: tuple[str, ...] = ()
    """Another text to score, as for train.py: the whole of it (default: the validation part of the
    text that the model learned from)."""
    unknown: UnknownPolicy = "error"
    """What to do with characters of --corpus that the model has never seen."""
    json: bool = False
    """Print JSON instead of the report."""
    device: DeviceConfig = field(default_factory=DeviceConfig)


EVALUATED = 1_000_000
"""The largest number of characters of the validation part that an evaluation reads."""


def options_of(cls: type[Config], values: Mapping[str, Any]) -> Config:
    """Return a dataclass with those of `values` that are its own, by name, and else its
    defaults."""
    own = {o.name: values[o.name] for o in fields(cls) if o.name in values}  # type: ignore[arg-type]
    return cls(**own)


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
