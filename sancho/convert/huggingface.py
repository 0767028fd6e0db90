"""Export to a folder for Hugging Face's transformers, and for other programs that read its format.

If transformers has a class that computes the same model, the folder is for that class:

- GPT-2 for models with LayerNorm and added positions, such as `classic`.
- Qwen 3 for models with RMSNorm, rotary positions, and normalised queries and keys.

For all others, such as those with an n-gram table, modeling_sancho.py is copied into the folder.

Everything is written as JSON, text and safetensors, so that transformers is not needed for it.
"""

import importlib.util
import json
import math
import re
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template
from typing import NamedTuple

import numpy as np
import safetensors.numpy

from sancho import checkpoint
from sancho.checkpoint import Checkpoint
from sancho.config import DEFAULT_SAMPLING, CheckpointOption, ModelConfig
from sancho.convert.output import new_folder, require_computed
from sancho.errors import OtherFunction
from sancho.generate import continue_texts
from sancho.numpy_model import NumpyGPT
from sancho.shared.proof import proof_of, require_proof
from sancho.shared.weights import (
    count_parameters,
    norm_epsilon,
    rotary_angles,
    sinusoids,
    weight_shapes,
)

Weights = dict[str, np.ndarray]

FOLDER = Path(__file__).resolve().parent
MODELING = "modeling_sancho.py"
START = "En un lugar de la Mancha"
SEED = 1605
NO_SPECIAL_TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
"""No character means the beginning or end of a text, or padding. By default, GPT-2's id 50256 would
mean the first two."""
COMPUTED = {
    "norm": ("layernorm", "rmsnorm"),
    "position": ("learned", "sinusoidal", "rope"),
    "activation": ("relu", "gelu", "silu", "relu2", "geglu", "swiglu"),
}
"""The names of options that modeling_sancho.py knows."""
PLAIN = {"ngram_size": 1, "embedding_skip": False}
GPT2 = PLAIN | {"norm": "layernorm", "qk_norm": False}
QWEN3 = PLAIN | {"norm": "rmsnorm", "position": "rope", "qk_norm": True, "bias": False}
GPT2_ACTIVATIONS = ("relu", "gelu", "silu", "relu2")
QWEN3_ACTIVATIONS = {"relu2": "relu", "geglu": "gelu", "swiglu": "silu"}
"""Our activations, and Qwen 3's names for the activation of its gate."""
GPT2_NAMES = {
    "token_embedding": "transformer.wte",
    "position_embedding": "transformer.wpe",
    "blocks": "transformer.h",
    "norm1": "ln_1",
    "attention.qkv": "attn.c_attn",
    "attention.proj": "attn.c_proj",
    "norm2": "ln_2",
    "feed_forward.expand": "mlp.c_fc",
    "feed_forward.proj": "mlp.c_proj",
    "norm": "transformer.ln_f",
    "head": "lm_head",
}
"""Our names of the parts, and GPT-2's."""


@dataclass(frozen=True, kw_only=True)
class ToHuggingFaceOptions(CheckpointOption):
    """Turn a checkpoint into a folder that Hugging Face's transformers can open."""

    output: Path = Path("sancho-huggingface")
    """The folder to make; it must not exist yet, or must be empty."""


class Export(NamedTuple):
    """A model in the form of one of transformers' classes."""

    config: dict
    """The entries of config.json that not all exports have."""
    weights: Weights
    """The weights, by the names of that class."""
    compared: str = ""
    """A line that says whether its logits were compared with the model's."""

    @property
    def name(self) -> str:
        """The class that reads it."""
        return self.config["architectures"][0]

    @property
    def trust(self) -> str:
        """The argument that from_pretrained() needs besides the folder, if any."""
        return ", trust_remote_code=True" if "auto_map" in self.config else ""


def to_huggingface(options: ToHuggingFaceOptions) -> list[str]:
    """Write the folder; return the lines to tell the user."""
    saved = checkpoint.load(checkpoint.find_checkpoint(options.checkpoint))
    export = write_folder(saved, options.output)
    return [
        f"{options.output}: {export.name}, {count_parameters(saved.model_config):,} parameters",
        export.compared,
        f'open it with AutoModelForCausalLM.from_pretrained("{options.output}"{export.trust}); '
        "README.md in it says more",
    ]


def write_folder(saved: Checkpoint, output: str | Path) -> Export:
    """Write the folder, completely or not at all; return the export in it.

    Raises UserError if `output` can't be a new folder, and OtherFunction for a model that the
    folder would not compute.
    """
    model = require_computed(saved, COMPUTED, f"sancho/convert/{MODELING}")
    export = export_of(saved)
    # safetensors writes an array as it lies in memory.
    weights = {name: np.ascontiguousarray(array) for name, array in export.weights.items()}
    common = {
        "vocab_size": saved.model_config.vocab_size,
        "tie_word_embeddings": saved.model_config.tie_embeddings,
        "dtype": "float32",
        **NO_SPECIAL_TOKENS,
    }
    files = {
        "config.json": _json(common | export.config),
        "generation_config.json": _json(NO_SPECIAL_TOKENS),
        "tokenizer.json": _json(tokenizer(saved.characters)),
        "tokenizer_config.json": _json(_tokenizer_config(saved.model_config)),
        "README.md": model_card(saved, model, export).encode(),
        # transformers asks for this mark.
        "model.safetensors": safetensors.numpy.save(weights, {"format": "pt"}),
    }
    if export.trust:
        files[MODELING] = (FOLDER / MODELING).read_bytes()
    with new_folder(output) as folder:
        for name, content in files.items():
            (folder / name).write_bytes(content)
        compared = compare(model, folder, export)
    return export._replace(compared=compared)


def compare(model: NumpyGPT, folder: Path, export: Export) -> str:
    """Compare the logits of a folder with those of the model, if transformers is installed.

    Returns a line that says whether it is. Raises OtherFunction if the logits differ.
    """
    try:
        with warnings.catch_warnings():  # about what notebooks lack for progress bars
            warnings.simplefilter("ignore")
            transformers = importlib.import_module("transformers")
        torch = importlib.import_module("torch")
        module = transformers
        if export.trust:
            # Our own copy, because Python would leave a __pycache__ beside the one in the folder.
            spec = importlib.util.spec_from_file_location(Path(MODELING).stem, FOLDER / MODELING)
            assert spec and spec.loader  # every Python file has them
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        theirs = getattr(module, export.name)
    except (ImportError, OSError) as error:  # a PyTorch that can't be loaded raises either
        return f"not compared with the model, because transformers can't be loaded here ({error})"
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    opened = theirs.from_pretrained(folder)

    def logits(ids: np.ndarray) -> np.ndarray:
        return opened(input_ids=torch.from_numpy(ids)).logits.detach().numpy()

    proof = proof_of(model.logits, model.config)
    try:
        require_proof(proof, logits, model.config, f"{export.name} of transformers")
    except OtherFunction as why:
        raise OtherFunction(f"the model can't be exported: {why}") from None
    return f"transformers {transformers.__version__} opens it and computes the same logits"


def export_of(saved: Checkpoint) -> Export:
    """Return the model as GPT-2 or Qwen 3 where they compute the same, else with its own code."""
    config = saved.model_config
    weights = dict(saved.weights)
    if config.tie_embeddings:
        del weights["head.weight"]
    is_gpt2 = _has(config, GPT2) and config.activation in GPT2_ACTIVATIONS
    if is_gpt2 and config.position != "rope":
        return as_gpt2(config, weights)
    if _has(config, QWEN3) and config.activation in QWEN3_ACTIVATIONS:
        return as_qwen3(config, weights)
    return as_sancho(config, weights)


def _has(config: ModelConfig, options: dict) -> bool:
    return all(getattr(config, name) == value for name, value in options.items())


def as_gpt2(config: ModelConfig, weights: Weights) -> Export:
    """Return the model as GPT2LMHeadModel: matrices lie transposed there, and all have biases."""
    shapes = weight_shapes(replace(config, bias=True))
    biases = {name: np.zeros(s, np.float32) for name, s in shapes.items() if name.endswith("bias")}
    parts = biases | weights
    if config.position == "sinusoidal":
        parts["position_embedding.weight"] = sinusoids(config).astype(np.float32)
    found = {}
    for name, array in parts.items():
        is_linear = name.startswith("blocks.") and array.ndim == 2
        found[gpt2_name(name)] = array.T if is_linear else array  # (in, out)
    facts = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_positions": config.block_size,
        "n_layer": config.n_layer,
        "n_head": config.n_head,
        "n_embd": config.n_embd,
        "n_inner": config.hidden_size,
        "activation_function": config.activation,
        "layer_norm_epsilon": norm_epsilon(config),
        "embd_pdrop": config.dropout,
        "resid_pdrop": config.dropout,
        "attn_pdrop": 0.0,
    }
    return Export(facts, found)


def gpt2_name(name: str) -> str:
    """Return blocks.0.norm1.weight as transformer.h.0.ln_1.weight, its name in GPT-2."""
    part, _, kind = name.rpartition(".")
    if block := re.fullmatch(r"blocks\.(\d+)\.(.+)", part):
        return f"{GPT2_NAMES['blocks']}.{block[1]}.{GPT2_NAMES[block[2]]}.{kind}"
    return f"{GPT2_NAMES[part]}.{kind}"


def as_qwen3(config: ModelConfig, weights: Weights) -> Export:
    """Return the model as Qwen3ForCausalLM.

    There the channels j and j + D/2 of a head are rotated together, ours are 2j and 2j + 1. Its
    feed-forward layer is gated; relu(z) · z = relu(z)², so with relu2 both expansions are ours.
    Every position attends to the last block_size characters at most, so that no distance comes up
    that the model has never seen.
    """
    C, D = config.n_embd, config.head_size
    halves = np.arange(C).reshape(config.n_head, D // 2, 2).swapaxes(1, 2).reshape(-1)
    gain = np.ones(C, np.float32)
    head_gain = np.ones(D, np.float32)
    found = {
        "model.embed_tokens.weight": weights["token_embedding.weight"],
        "model.norm.weight": gain,
    }
    if not config.tie_embeddings:
        found["lm_head.weight"] = weights["head.weight"]
    for layer in range(config.n_layer):
        theirs, ours = f"model.layers.{layer}", f"blocks.{layer}"
        q, k, v = np.split(weights[f"{ours}.attention.qkv.weight"], 3)
        expand = weights[f"{ours}.feed_forward.expand.weight"]
        up, gate = np.split(expand, 2) if config.is_gated else (expand, expand)
        found |= {
            f"{theirs}.input_layernorm.weight": gain,
            f"{theirs}.self_attn.q_proj.weight": q[halves],
            f"{theirs}.self_attn.k_proj.weight": k[halves],
            f"{theirs}.self_attn.v_proj.weight": v,
            f"{theirs}.self_attn.o_proj.weight": weights[f"{ours}.attention.proj.weight"],
            f"{theirs}.self_attn.q_norm.weight": head_gain,
            f"{theirs}.self_attn.k_norm.weight": head_gain,
            f"{theirs}.post_attention_layernorm.weight": gain,
            f"{theirs}.mlp.gate_proj.weight": gate,
            f"{theirs}.mlp.up_proj.weight": up,
            f"{theirs}.mlp.down_proj.weight": weights[f"{ours}.feed_forward.proj.weight"],
        }
    facts = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "max_position_embeddings": config.block_size,
        "num_hidden_layers": config.n_layer,
        "num_attention_heads": config.n_head,
        "num_key_value_heads": config.n_head,
        "head_dim": D,
        "hidden_size": C,
        "intermediate_size": config.hidden_size,
        "hidden_act": QWEN3_ACTIVATIONS[config.activation],
        "rms_norm_eps": norm_epsilon(config),
        "attention_bias": False,
        "attention_dropout": 0.0,
        # The first for transformers 4, the second for 5.
        "rope_theta": 10000.0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "use_sliding_window": True,
        "sliding_window": config.block_size,
        "max_window_layers": 0,
        "layer_types": ["sliding_attention"] * config.n_layer,
    }
    return Export(facts, found)


def as_sancho(config: ModelConfig, weights: Weights) -> Export:
    """Return the model as modeling_sancho.py reads it, with the names of weights.py.

    The tables of its positions lie beside the weights, in the same bits as here.
    """
    found = dict(weights)
    if config.position == "rope":
        angles = rotary_angles(config)
        rotations = np.stack((np.cos(angles), np.sin(angles)), -1)  # (block, D/2, 2)
        found["turns"] = rotations.astype(np.float32)
    elif config.position == "sinusoidal":
        found["positions"] = sinusoids(config).astype(np.float32)
    own = (
        "block_size n_layer n_head n_embd bias norm position activation qk_norm ngram_size "
        "ngram_rows embedding_skip"
    ).split()
    facts = {
        "architectures": ["SanchoForCausalLM"],
        "model_type": "sancho",
        "auto_map": {
            "AutoConfig": "modeling_sancho.SanchoConfig",
            "AutoModelForCausalLM": "modeling_sancho.SanchoForCausalLM",
        },
        **{name: getattr(config, name) for name in own},
        "hidden_units": config.hidden_size,
    }
    return Export(facts, found)


# --- the vocabulary -------------------------------------------------------------------------


def tokenizer(characters: str) -> dict:
    """Return tokenizer.json: NFC, then every character alone.

    There is no token for unknown characters, so that they raise an error instead of being lost.
    """
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": r"[\s\S]"},  # a dot would leave out newlines
            "behavior": "Isolated",
            "invert": False,
        },
        "post_processor": None,
        "decoder": {"type": "Fuse"},  # otherwise blanks would come between the characters
        "model": {
            "type": "WordLevel",
            "vocab": {character: i for i, character in enumerate(characters)},
            "unk_token": "[UNK]",
        },
    }


def _tokenizer_config(config: ModelConfig) -> dict:
    return {
        # Otherwise AutoTokenizer takes the tokenizer of the model's class.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config.block_size,
        "model_input_names": ["input_ids", "attention_mask"],
        "padding_side": "left",
        "clean_up_tokenization_spaces": False,
    }


# --- the model card -------------------------------------------------------------------------


def model_card(saved: Checkpoint, model: NumpyGPT, export: Export) -> str:
    """Return the README.md of the folder, in Spanish and in English."""
    config = saved.model_config
    progress = saved.progress
    start = START if set(START) <= set(saved.characters) else saved.characters[0]
    quarter = max(1, config.block_size // 4)
    values = {
        "layers": config.n_layer,
        "heads": config.n_head,
        "width": config.n_embd,
        "block": config.block_size,
        "room": max(1, config.block_size - len(start)),
        "quarter": quarter,
        "rest": config.block_size - quarter,
        "characters": config.vocab_size,
        # A name from a checkpoint must not become Markdown.
        "corpus": re.sub(r"[^\w .-]", "_", saved.corpus_name),
        "start": json.dumps(start, ensure_ascii=False),
        "trust": export.trust,
        "temperature": DEFAULT_SAMPLING.temperature,
        "min_p": DEFAULT_SAMPLING.min_p,
        "seed": SEED,
        "sample": "".join(f"    {line}\n" for line in sample(saved, model, start).splitlines()),
    }
    card = (FOLDER / "model_card.md").read_text(encoding="utf-8")
    kept = {export.name}  # of the lines marked with a «name»
    if progress.val_loss is not None:
        kept.add("measured")
        values["nats"] = f"{progress.val_loss:.4f}"
        values["bits"] = f"{progress.val_loss / math.log(2):.3f}"
    card = re.sub(r"(?m)^«(\w+)» (.*\n)", lambda line: line[2] if line[1] in kept else "", card)
    counts = {
        "parameters": count_parameters(config),
        "steps": progress.step,
        "read": progress.tokens,
    }
    in_spanish = {name: count_in_spanish(count) for name, count in counts.items()}
    in_english = {name: f"{count:,}" for name, count in counts.items()}
    spanish, mark, english = card.partition("## In English")
    card = Template(spanish).substitute(values | in_spanish)
    return card + mark + Template(english).substitute(values | in_english)


def sample(saved: Checkpoint, model: NumpyGPT, start: str) -> str:
    """Return a start and the 300 characters that the model writes after it."""
    prompt = saved.tokenizer.encode(start)
    (text,) = continue_texts(
        model, saved.tokenizer, prompt, DEFAULT_SAMPLING, max_new_tokens=300, seed=SEED
    )
    return start + text


def count_in_spanish(count: int) -> str:
    """Return a count in groups of three digits; four digits stand together."""
    return f"{count:,}".replace(",", "\u202f") if count > 9999 else str(count)


def _json(content: dict) -> bytes:
    return (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode()
