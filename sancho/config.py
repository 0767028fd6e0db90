"""Every option: its default, its range and its help, once.

The command lines of train.py and sample.py are made from these classes, and so are the
notebooks' calls. Making a configuration with a value out of range raises UserError.
"""

from dataclasses import dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import Literal, TypeVar, Union, get_args, get_origin

from sancho.errors import UserError
from sancho.tokenizer import UnknownPolicy

Config = TypeVar("Config")


def _require(condition: bool, option: str, value: object, rule: str) -> None:
    """Raise UserError unless `condition` holds."""
    if not condition:
        raise UserError(f"--{option} is {value!r}; it must be {rule}")


def _check_choices(config: object) -> None:
    """Raise UserError where a field of a few allowed values has another one."""
    for option in fields(config):
        if get_origin(option.type) is Literal:
            choices, value = get_args(option.type), getattr(config, option.name)
            _require(value in choices, option.name, value, f"one of {', '.join(choices)}")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
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
    """Share of activations dropped in training."""
    bias: bool = False
    """Biases in the linear layers and in LayerNorm."""
    norm: Literal["layernorm", "rmsnorm"] = "rmsnorm"
    """Normalisation before attention, feed-forward and head. rmsnorm learns no gain."""
    position: Literal["learned", "sinusoidal", "rope"] = "rope"
    """How the model knows the order of the characters."""
    activation: Literal["relu", "gelu", "silu", "relu2", "geglu", "swiglu"] = "relu2"
    """Activation of the feed-forward layer; relu2 is the square of relu."""
    ngram_size: int = 1
    """Also look up the last 2, 3, … characters, up to this many, in a table; 1: no table."""
    ngram_rows: int = 65536
    """Rows of that table; sequences that the hash puts on one row share it."""
    ngram_dropout: float = 0.0
    """Share of the vectors looked up there that is dropped in training; follows the length of the
    text, if you don't say."""
    embedding_skip: bool = False
    """Add the embedding again before every block after the first, in a strength it learns."""
    qk_norm: bool = True
    """Normalise queries and keys before their product."""
    tie_embeddings: bool = False
    """Use one matrix for the character embedding and the output head."""

    def __post_init__(self) -> None:
        _check_choices(self)
        # The upper ends only keep a mistyped or forged number from taking all memory.
        for name, highest in (
            ("vocab_size", 65536),
            ("block_size", 65536),
            ("n_layer", 1000),
            ("n_head", 65536),
            ("n_embd", 65536),
            ("ngram_size", 16),
            ("ngram_rows", 2**31 - 1),
        ):
            value = getattr(self, name)
            _require(value >= 1, name, value, "1 or more")
            _require(value <= highest, name, value, f"{highest} or less")
        size = self.n_layer * self.block_size * self.n_embd
        _require(size <= 2**28, "block_size", self.block_size, "2^28 / (n_layer · n_embd) or less")
        _require(
            self.n_embd % self.n_head == 0,
            "n_head",
            self.n_head,
            f"a divisor of n_embd, which is {self.n_embd}",
        )
        for name in ("dropout", "ngram_dropout"):
            value = getattr(self, name)
            _require(0 <= value < 1, name, value, "at least 0 and less than 1")
        if self.position == "rope":
            rule = f"such that n_embd / n_head is even for rope (it is {self.head_size})"
            _require(self.head_size % 2 == 0, "n_head", self.n_head, rule)
        if self.position == "sinusoidal":
            _require(self.n_embd % 2 == 0, "n_embd", self.n_embd, "even for sinusoidal positions")

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
class TrainConfig:
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
    """Peak learning rate of the table of character sequences (row-wise Adagrad)."""
    weight_decay: float = 0.0
    """Decoupled weight decay of the matrices, but not of the table."""
    beta1: float = 0.8
    """AdamW: decay of the mean of the gradients."""
    beta2: float = 0.95
    """AdamW: decay of the mean of their squares."""
    grad_clip: float = 1.0
    """Largest norm of the gradient; 0 switches clipping off."""
    warmup_iters: int = 20
    """Steps in which the learning rate rises to its peak."""
    look_ahead: int = 0
    """Heads that predict the 2nd, 3rd, … character from here, only in training."""
    decay_fraction: float = 0.6
    """Share of the steps, at the end, in which the learning rate falls linearly to zero."""
    eval_interval: int = 900
    """Steps between evaluations over the whole validation part, and one at the end; follows the
    length of the text, if you don't say."""
    log_interval: int = 10
    """Steps between lines in metrics.jsonl and updates of the progress bar."""
    patience: int = 0
    """Stop after this many evaluations without a better validation loss; 0: never."""
    seed: int = 1605
    """Decides initial weights, batches and dropout."""

    def __post_init__(self) -> None:
        _check_choices(self)
        for name in (
            "max_iters",
            "batch_size",
            "gradient_accumulation_steps",
            "eval_interval",
            "log_interval",
        ):
            _require(getattr(self, name) >= 1, name, getattr(self, name), "1 or more")
        for name in ("weight_decay", "grad_clip", "warmup_iters", "look_ahead", "patience", "seed"):
            _require(getattr(self, name) >= 0, name, getattr(self, name), "0 or more")
        for option in fields(self):
            if option.type is int:
                value, bits = getattr(self, option.name), 128 if option.name == "seed" else 31
                _require(value < 2**bits, option.name, value, f"less than 2^{bits}")
        for name in ("learning_rate", "muon_learning_rate", "ngram_learning_rate"):
            value = getattr(self, name)
            _require(0 < value <= 1e30, name, value, "greater than 0, and 1e30 or less")
        _require(self.look_ahead <= 16, "look_ahead", self.look_ahead, "16 or less")
        _require(self.weight_decay <= 1e6, "weight_decay", self.weight_decay, "1e6 or less")
        _require(self.grad_clip < float("inf"), "grad_clip", self.grad_clip, "finite")
        for name in ("beta1", "beta2"):
            value = getattr(self, name)
            _require(0 <= value < 1, name, value, "at least 0 and less than 1")
        _require(0 <= self.decay_fraction <= 1, "decay_fraction", self.decay_fraction, "in [0, 1]")

    def characters_per_step(self, model: ModelConfig) -> int:
        """Return how many characters an optimizer step reads."""
        return model.block_size * self.batch_size * self.gradient_accumulation_steps


@dataclass(frozen=True, kw_only=True)
class SampleConfig:
    """How the next character is chosen."""

    temperature: float = 0.8
    """Below 1 likely characters become likelier, above 1 less so; 0 always takes the likeliest."""
    top_k: int | None = None
    """Keep only the k likeliest characters."""
    top_p: float | None = None
    """Keep the likeliest characters that together reach this probability."""
    min_p: float | None = None
    """Drop characters less likely than this number times the likeliest one."""
    repetition_penalty: float = 1.0
    """Above 1 makes characters of the context less likely."""

    def __post_init__(self) -> None:
        value = self.temperature
        _require(0 <= value < float("inf"), "temperature", value, "a finite number, 0 or more")
        _require(self.top_k is None or self.top_k >= 1, "top_k", self.top_k, "1 or more")
        _require(self.top_p is None or 0 <= self.top_p <= 1, "top_p", self.top_p, "between 0 and 1")
        _require(self.min_p is None or 0 <= self.min_p <= 1, "min_p", self.min_p, "between 0 and 1")
        value = self.repetition_penalty
        _require(
            0 < value < float("inf"), "repetition_penalty", value, "a finite number greater than 0"
        )


@dataclass(frozen=True, kw_only=True)
class DeviceConfig:
    """Where the model computes."""

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """auto: train.py takes a CUDA GPU where there is one; sample.py takes the CPU, or CUDA for more
    than 15 million parameters."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Type of the matrix products; auto is bfloat16 on a CUDA GPU that has it, else float32."""

    def __post_init__(self) -> None:
        _check_choices(self)


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Which run: where it is kept and what it starts from."""

    preset: Literal["auto", "mini", "classic", "base"] = "auto"
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
    """Start a new run from the weights of this checkpoint, a model of the same shape."""

    def __post_init__(self) -> None:
        _check_choices(self)
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


PagePrecision = Literal["float16", "float32"]


@dataclass(frozen=True, kw_only=True)
class ToPageOptions:
    """Make one HTML file of a checkpoint: the model writes in it, in any browser, offline."""

    checkpoint: Path | None = None
    """The checkpoint to load (default: out/best.safetensors; where that is missing, the sancho that
    comes with the project); the curve is drawn from a metrics.jsonl beside it."""
    output: Path = Path("sancho.html")
    """The page; an older page there is replaced."""
    precision: PagePrecision = "float16"
    """Type of the weights in the page; float32 keeps every bit, in about twice the size."""
    course: str = "notebooks"
    """Where the page's links to the chapters lead: a folder, or its address on the web."""

    def __post_init__(self) -> None:
        _check_choices(self)


@dataclass(frozen=True, kw_only=True)
class ToHuggingFaceOptions:
    """Make a folder of a checkpoint that Hugging Face's transformers opens."""

    checkpoint: Path | None = None
    """The checkpoint to load (default: out/best.safetensors; where that is missing, the sancho that
    comes with the project)."""
    output: Path = Path("sancho-huggingface")
    """The folder to make; it must not be there, or be empty."""


@dataclass(frozen=True, kw_only=True)
class ToOnnxOptions:
    """Make one ONNX file of a checkpoint, for onnxruntime and its like."""

    checkpoint: Path | None = None
    """The checkpoint to load (default: out/best.safetensors; where that is missing, the sancho that
    comes with the project)."""
    output: Path = Path("sancho.onnx")
    """The file to make; it must not be there."""


@dataclass(frozen=True, kw_only=True)
class FromNanogptOptions:
    """Make a checkpoint of a character model that nanoGPT trained."""

    checkpoint: Path = Path("ckpt.pt")
    """What nanoGPT's train.py left in its out_dir."""
    meta: Path | None = None
    """The characters: the meta.pkl that nanoGPT's prepare.py wrote beside train.bin."""
    output: Path = Path("nanogpt.safetensors")
    """The checkpoint to make; it must not be there."""


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """Let a trained model go on with a text. The text goes to stdout, all else to stderr."""

    checkpoint: Path | None = None
    """The checkpoint to load (default: out/best.safetensors; where that is missing, the sancho that
    comes with the project)."""
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
    stream: bool = True
    """Show each character as it comes; without, all samples are computed side by side."""
    sampling: SampleConfig = field(default_factory=SampleConfig)
    device: DeviceConfig = field(default_factory=DeviceConfig)

    def __post_init__(self) -> None:
        _check_choices(self)
        _require(self.num_samples >= 1, "num_samples", self.num_samples, "1 or more")
        _require(self.num_samples <= 10_000, "num_samples", self.num_samples, "10000 or less")
        _require(self.max_new_tokens >= 0, "max_new_tokens", self.max_new_tokens, "0 or more")
        _require(self.seed >= 0, "seed", self.seed, "0 or more")
        _require("" not in self.stop, "stop", "", "a text of one character or more")


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Say what a trained model is worth: its loss, and the text that it writes."""

    checkpoint: Path | None = None
    """The checkpoint to load (default: out/best.safetensors; where that is missing, the sancho that
    comes with the project)."""
    dataset: str | None = None
    """A prepared folder under data/ (default: the one that the model learned from)."""
    json: bool = False
    """Write JSON instead of a table."""
    device: DeviceConfig = field(default_factory=DeviceConfig)


def from_dict(cls: type[Config], values: object) -> Config:
    """Return a dataclass made from what a JSON file holds.

    Raises ValueError for anything but an object, an unknown name, a value of the wrong type or out
    of range.
    """
    if not isinstance(values, dict):
        raise ValueError(f"{cls.__name__} is not an object")
    kinds = {option.name: option.type for option in fields(cls)}
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
