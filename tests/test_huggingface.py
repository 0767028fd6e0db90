"""transformers opens what to-huggingface writes, and computes and writes the same."""

import importlib.util
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import safetensors
import torch
from conftest import run
from golden.make import FAMILIES, FOLDER, SIZE, START, TOKENIZER, random_weights

from sancho import checkpoint
from sancho.checkpoint import Checkpoint, Progress
from sancho.config import ModelConfig, SampleConfig, TrainConfig
from sancho.doors.huggingface import door_of, model_card, write_folder
from sancho.errors import UserError
from sancho.generate import continue_text
from sancho.presets import PRESETS
from sancho.tokenizer import CharTokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

BLOCK = SIZE["block_size"]
SHAPES = {
    "qwen": {},
    "qwen-tied": {"activation": "geglu", "tie_embeddings": True},
    "qwen-swiglu": {"activation": "swiglu"},
    "window": {"n_layer": 1},
    "gpt": {"norm": "layernorm", "position": "learned", "activation": "gelu", "qk_norm": False},
    "gpt-sinusoidal": {
        "norm": "layernorm",
        "position": "sinusoidal",
        "activation": "silu",
        "qk_norm": False,
        "bias": True,
        "tie_embeddings": True,
    },
    "rest": {"norm": "layernorm", "position": "learned", "ngram_size": 3, "ngram_rows": 64},
}
DOORS = {
    "classic": "GPT2LMHeadModel",
    "mini": "SanchoForCausalLM",
    "base": "SanchoForCausalLM",
    "gated": "SanchoForCausalLM",
    "sinusoidal": "SanchoForCausalLM",
    "qwen": "Qwen3ForCausalLM",
    "qwen-tied": "Qwen3ForCausalLM",
    "qwen-swiglu": "Qwen3ForCausalLM",
    "window": "Qwen3ForCausalLM",
    "gpt": "GPT2LMHeadModel",
    "gpt-sinusoidal": "GPT2LMHeadModel",
    "rest": "SanchoForCausalLM",
}
HOSTILE = "\n \"#'<>\\abcé—\u2028\U0001f600"
TEXTS = ("", "a", "\n\n  a  b\n", "abce\u0301\ncab  ", "\\\"<a>#'", "\u2028\U0001f600—\n")

all_cases = pytest.mark.parametrize("name", DOORS)
readers = pytest.mark.parametrize("name", ["classic", "mini", "qwen"])


def case(name: str) -> Checkpoint:
    if name in FAMILIES:
        return checkpoint.load(FOLDER / f"{name}.safetensors")
    return small_checkpoint(ModelConfig(**SIZE | SHAPES[name]))


def small_checkpoint(model: ModelConfig, characters: str = TOKENIZER.characters) -> Checkpoint:
    return Checkpoint(
        model=model,
        characters=characters,
        train=TrainConfig(),
        progress=Progress(step=1234, tokens=5678000, val_loss=1.25),
        corpus_name="prueba",
        corpus_sha256="",
        weights=random_weights(model, 3),
    )


def ids_of(name: str) -> list[int]:
    if name in FAMILIES:
        return json.loads((FOLDER / f"{name}.json").read_text("utf-8"))["ids"]
    return np.random.default_rng(5).integers(0, SIZE["vocab_size"], BLOCK).tolist()


def logits_of(name: str) -> np.ndarray:
    """What is written down, or what the model computes in float64."""
    if name in FAMILIES:
        return np.array(json.loads((FOLDER / f"{name}.json").read_text("utf-8"))["logits"])
    with torch.inference_mode():
        return case(name).build_model().double()(torch.tensor([ids_of(name)]))[0].numpy()


def text_of(name: str, start: str, count: int) -> str:
    """What is written down, or what sample.py writes, the likeliest character always."""
    if name in FAMILIES and start == START:
        return json.loads((FOLDER / f"{name}.json").read_text("utf-8"))["greedy"][:count]
    saved, greedy = case(name), SampleConfig(temperature=0)
    prompt = saved.tokenizer.encode(start)
    pieces = continue_text(
        saved.build_plain(), saved.tokenizer, prompt, greedy, max_new_tokens=count
    )
    return "".join(pieces)


# --- which door -----------------------------------------------------------------------------


@all_cases
def test_the_plainest_door_is_taken(name):
    assert door_of(case(name)).name == DOORS[name]


@pytest.mark.parametrize(
    ("preset", "options", "door"),
    [
        ("classic", {}, "GPT2LMHeadModel"),
        ("classic", {"activation": "swiglu"}, "SanchoForCausalLM"),
        ("classic", {"qk_norm": True}, "SanchoForCausalLM"),
        ("classic", {"embedding_skip": True}, "SanchoForCausalLM"),
        ("mini", {}, "SanchoForCausalLM"),
        ("mini", {"ngram_size": 1, "embedding_skip": False}, "Qwen3ForCausalLM"),
        ("base", {}, "SanchoForCausalLM"),
        ("base", {"embedding_skip": False}, "Qwen3ForCausalLM"),
        ("base", {"embedding_skip": False, "bias": True}, "SanchoForCausalLM"),
        ("base", {"embedding_skip": False, "activation": "gelu"}, "SanchoForCausalLM"),
        ("base", {"embedding_skip": False, "qk_norm": False}, "SanchoForCausalLM"),
    ],
)
def test_each_preset_and_its_kin_have_their_door(preset, options, door):
    small = {"n_layer": 1, "n_embd": 24, "vocab_size": 33, "block_size": 8, "ngram_rows": 16}
    model = replace(PRESETS[preset].model, **small, **options)
    assert door_of(small_checkpoint(model)).name == door


# --- the folder -----------------------------------------------------------------------------


@readers
def test_the_folder_is_whole(tmp_path, name):
    write_folder(case(name), tmp_path / "out")
    files = {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}
    files |= {"README.md", "model.safetensors"}
    own = {"modeling_sancho.py"} if DOORS[name] == "SanchoForCausalLM" else set()
    assert {path.name for path in (tmp_path / "out").iterdir()} == files | own
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with safetensors.safe_open(tmp_path / "out" / "model.safetensors", "numpy") as file:
        assert file.metadata() == {"format": "pt"}


def test_the_command_says_which_door_it_took(tmp_path):
    out = tmp_path / "out"
    done = run("convert.py", "to-huggingface", "--checkpoint", FOLDER / "mini.safetensors",
               "--output", out)  # fmt: skip
    assert (done.status, done.out) == (0, "")
    assert f"{out}: SanchoForCausalLM, 8,226 parameters" in done.err
    assert "trust_remote_code=True" in done.err
    done = run("convert.py", "to-huggingface", "--checkpoint", FOLDER / "classic.safetensors",
               "--output", tmp_path / "2")  # fmt: skip
    assert "GPT2LMHeadModel" in done.err
    assert "trust" not in done.err


def test_a_folder_that_holds_something_is_refused(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    done = run("convert.py", "to-huggingface", "--checkpoint", FOLDER / "mini.safetensors",
               "--output", tmp_path)  # fmt: skip
    assert done.status == 2
    assert done.err.count("\n") == 1
    assert "is a folder that is not empty; choose another name" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_bad_checkpoint_leaves_nothing(tmp_path):
    raw = bytearray((FOLDER / "mini.safetensors").read_bytes())
    raw[-5] ^= 1
    (tmp_path / "bad.safetensors").write_bytes(raw)
    done = run("convert.py", "to-huggingface", "--checkpoint", tmp_path / "bad.safetensors",
               "--output", tmp_path / "out")  # fmt: skip
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert "is damaged" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["bad.safetensors"]


# --- the model card -------------------------------------------------------------------------


@readers
def test_the_card_tells_the_figures_twice(name):
    saved = replace(case(name), progress=Progress(step=1234, tokens=5678000, val_loss=1.25))
    card = model_card(saved, door_of(saved))
    assert not re.search(r"[«»$]", card.replace("$ ", ""))
    assert card.count("| 2 × 2 × 16 |") == 2
    assert card.count("1.2500 nats") == card.count(f"({1.25 / math.log(2):.3f} bits)") == 2
    assert "pérdida de validación" in card
    assert "validation loss" in card
    assert card.count("1,234 ") == card.count("5,678,000 ") == 2
    assert card.count(f"`{DOORS[name]}`") == 2
    assert not any(f"`{door}`" in card for door in set(DOORS.values()) - {DOORS[name]})
    assert card.startswith("---\nlanguage: es\n")


def test_a_card_without_an_evaluation_claims_no_loss():
    saved = replace(case("mini"), progress=Progress())
    card = model_card(saved, door_of(saved))
    assert "nats" not in card


def test_a_name_from_a_checkpoint_is_no_markdown():
    saved = replace(case("mini"), corpus_name="a|b](http://x)<script>\n---\n# c")
    card = model_card(saved, door_of(saved))
    assert "| a_b__http___x__script__---__ c |" in card


# --- transformers, in a process without our package -------------------------------------------

READ = """
import contextlib, io, json, os, re, sys
sys.modules["sancho"] = None  # whoever imports it gets an ImportError
import torch, transformers
from transformers import AutoModelForCausalLM, AutoTokenizer
torch.set_num_threads(1)

def load(folder):
    trust = {"trust_remote_code": os.path.exists(f"{folder}/modeling_sancho.py")}
    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, **trust)
    return model, AutoTokenizer.from_pretrained(folder, **trust), info

def go_on(model, tokenizer, texts, count, cache):
    inputs = tokenizer(texts, padding=len(texts) > 1, return_tensors="pt")
    length = inputs["input_ids"].shape[1]
    try:
        ids = model.generate(**inputs, max_new_tokens=count, do_sample=False, use_cache=cache)
    except Exception as error:
        return type(error).__name__
    return [tokenizer.decode(row[length:], skip_special_tokens=True) for row in ids]

def run_card(folder):
    code = re.search("```python\\n(.*?)```", open(f"{folder}/README.md").read(), re.DOTALL)[1]
    out = io.StringIO()
    before = os.getcwd()
    os.chdir(folder)
    with contextlib.redirect_stdout(out):
        exec(code, {})
    os.chdir(before)
    return out.getvalue()

@torch.no_grad()
def answers(name, question):
    model, tokenizer, info = load(name)
    ids, start = torch.tensor([question["ids"]]), question["start"]
    found = {"class": type(model).__name__, "info": [key for key, value in info.items() if value]}
    found["logits"] = model(ids).logits[0].tolist()
    found["loss"] = model(ids, labels=ids).loss.item()
    for cache in (True, False):
        one = [go_on(model, tokenizer, [start], n, cache) for n in question["counts"]]
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(3)
        two = go_on(model, tokenizer, [start, start[-4:]], question["counts"][0], cache)
        found[f"texts {cache}"], found[f"two {cache}"] = one, two
    found["card"] = run_card(name) if question["card"] else ""
    if question["again"]:
        model.save_pretrained("again")
        tokenizer.save_pretrained("again")
        found["again"] = load("again")[0](ids).logits[0].tolist()
    if question["chunks"]:
        first = model(ids[:, :9], use_cache=True).past_key_values
        found["refused"] = []
        for given in ({}, {"previous_ids": ids[:, 6:9]}):
            try:
                model(ids[:, 9:], past_key_values=first, **given)
            except ValueError as error:
                found["refused"].append(str(error))
        rest = model(ids[:, 9:], past_key_values=first, previous_ids=ids[:, 5:9])
        found["rest"] = rest.logits[0].tolist()
        try:
            model(ids[:, :1], past_key_values=first, previous_ids=ids[:, -4:])
        except ValueError as error:
            found["refused"].append(str(error))
    if question["anew"]:  # from the shape alone; then the weights, but none that isn't trained
        anew = type(model)(model.config).eval()
        trained = dict(model.named_parameters())
        anew.load_state_dict(trained, strict=False)
        found["anew"] = anew(ids).logits[0].tolist()
    if question["long"]:
        found["long"] = model(torch.tensor([question["long"]])).logits[0].tolist()
    return found

def tokens(question):
    tokenizer = AutoTokenizer.from_pretrained("hostile")
    found = {"size": len(tokenizer), "ids": [], "texts": []}
    for text in question["texts"]:
        ids = tokenizer(text)["input_ids"]
        found["ids"].append(ids)
        found["texts"].append([tokenizer.decode(ids, skip_special_tokens=x) for x in (False, True)])
    found["keys"] = list(tokenizer("a"))
    try:
        found["unknown"] = tokenizer("abX")["input_ids"]
    except Exception as error:
        found["unknown"] = str(error)
    return found

questions = json.load(sys.stdin)
found = {name: answers(name, question) for name, question in questions["models"].items()}
json.dump({"models": found, "tokens": tokens(questions)}, open("answers.json", "w"))
"""


@pytest.fixture(scope="module")
def transformers_says(tmp_path_factory) -> dict:
    """What transformers makes of every case: one process, as it takes long to start."""
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    folder, questions = tmp_path_factory.mktemp("folders"), {}
    for name in DOORS:
        write_folder(case(name), folder / name)
        questions[name] = {
            "ids": ids_of(name),
            "start": START,
            "counts": [BLOCK - len(START), 60],
            "card": name in ("classic", "mini", "qwen"),
            "again": name == "mini",
            "chunks": name == "mini",
            "anew": name in ("mini", "sinusoidal"),
            "long": LONG if name == "window" else [],
        }
    shape = {"vocab_size": len(HOSTILE), "block_size": 8, "n_layer": 1, "n_embd": 4}
    write_folder(small_checkpoint(ModelConfig(**shape), HOSTILE), folder / "hostile")
    done = subprocess.run(
        [sys.executable, "-I", "-c", READ],
        input=json.dumps({"models": questions, "texts": TEXTS}).encode(),
        cwd=folder,
        env=os.environ | {"HF_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return json.loads((folder / "answers.json").read_text("utf-8"))


LONG = np.random.default_rng(6).integers(0, SIZE["vocab_size"], 3 * BLOCK).tolist()


@pytest.fixture
def answer(transformers_says) -> Callable:
    return transformers_says["models"].__getitem__


@all_cases
def test_logits_are_ours(answer, name):
    found = answer(name)
    assert (found["class"], found["info"]) == (DOORS[name], [])
    logits = logits_of(name)
    np.testing.assert_allclose(found["logits"], logits, rtol=0, atol=1e-4)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    targets = ids_of(name)[1:]
    loss = -log_p[np.arange(len(targets)), targets].mean()
    assert found["loss"] == pytest.approx(loss, abs=1e-4)


@all_cases
@pytest.mark.parametrize("cache", [True, False])
def test_it_writes_our_text_up_to_the_block(answer, name, cache):
    assert answer(name)[f"texts {cache}"][0] == [text_of(name, START, BLOCK - len(START))]


@all_cases
@pytest.mark.parametrize("cache", [True, False])
def test_two_texts_side_by_side_are_as_alone(answer, name, cache):
    count = BLOCK - len(START)
    expected = [text_of(name, START, count), text_of(name, START[-4:], count)]
    assert answer(name)[f"two {cache}"] == expected


@all_cases
@pytest.mark.parametrize("cache", [True, False])
def test_past_the_block_it_does_what_the_card_says(answer, name, cache):
    found = answer(name)[f"texts {cache}"][1]
    if DOORS[name] == "GPT2LMHeadModel":
        assert found == "IndexError"
    elif DOORS[name] == "SanchoForCausalLM":
        assert found == [text_of(name, START, 60)]
    else:
        assert found == answer(name)[f"texts {not cache}"][1]
        assert len(found[0]) == 60


def test_qwen_attends_to_one_block_and_no_further(answer):
    """With one layer, the last BLOCK characters decide each prediction."""
    model = case("window").build_model().double()
    windows = np.lib.stride_tricks.sliding_window_view(LONG, BLOCK)
    with torch.inference_mode():
        logits = model(torch.from_numpy(windows.copy()))[:, -1].numpy()
    np.testing.assert_allclose(answer("window")["long"][BLOCK - 1 :], logits, rtol=0, atol=1e-4)


def test_what_transformers_saves_again_is_the_same(answer):
    assert answer("mini")["again"] == answer("mini")["logits"]


def test_with_a_cache_the_table_asks_for_what_came_before(answer):
    found = answer("mini")
    needs = "with a cache this model needs 4 previous_ids; see forward()"
    assert found["refused"] == [needs, needs, "17 characters do not fit block_size, 16"]
    np.testing.assert_allclose(found["rest"], found["logits"][9:], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["mini", "sinusoidal"])
def test_positions_are_right_in_a_model_that_is_made_anew(answer, name):
    np.testing.assert_allclose(answer(name)["anew"], answer(name)["logits"], rtol=0, atol=1e-5)


@readers
def test_the_code_on_the_card_writes(answer, name):
    text = answer(name)["card"].removesuffix("\n")
    assert 2 <= len(text) <= BLOCK
    assert set(text) <= set(TOKENIZER.characters)


def test_the_tokenizer_is_ours(transformers_says):
    found, tokenizer = transformers_says["tokens"], CharTokenizer(HOSTILE)
    assert found["size"] == len(HOSTILE)
    assert found["keys"] == ["input_ids", "attention_mask"]
    for text, ids, back in zip(TEXTS, found["ids"], found["texts"], strict=True):
        assert ids == tokenizer.encode(text).tolist()
        assert back == [tokenizer.decode(ids)] * 2


def test_an_unknown_character_is_an_error(transformers_says):
    assert "Missing [UNK] token" in transformers_says["tokens"]["unknown"]
    with pytest.raises(UserError, match="unknown character"):
        CharTokenizer(HOSTILE).encode("abX")
