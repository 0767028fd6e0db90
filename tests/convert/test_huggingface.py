"""transformers opens what to-huggingface writes, and computes and writes the same."""

import importlib.util
import json
import math
import os
import re
import subprocess
import sys
import textwrap
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from architectures import checkpoint_of, exact_logits, random_ids
from conftest import succeed
from golden.make import FAMILIES, FOLDER, SIZE, START, TOKENIZER, random_weights

from sancho import checkpoint
from sancho.checkpoint import Checkpoint, Progress
from sancho.config import ModelConfig, SampleConfig
from sancho.convert.huggingface import export_of, model_card, write_folder
from sancho.generate import continue_texts
from sancho.loss import cross_entropy, validation_loss
from sancho.model import GPT
from sancho.presets import PRESETS
from sancho.tokenizer import CharTokenizer

BLOCK = SIZE["block_size"]
GPT2, QWEN3, SANCHO = "GPT2LMHeadModel", "Qwen3ForCausalLM", "SanchoForCausalLM"
GPT_KIN = {"norm": "layernorm", "position": "learned", "qk_norm": False}
# How transformers reads each case: the golden families by their names, and these besides.
PLAIN = {"ngram_size": 1, "embedding_skip": False}
SHAPES = {
    "qwen": {},
    "qwen-tied": {"activation": "geglu", "tie_embeddings": True},
    "qwen-swiglu": {"activation": "swiglu"},
    "window": {"n_layer": 1},
    "gpt": GPT_KIN | {"activation": "gelu"},
    "gpt-sinusoidal": GPT_KIN
    | {"position": "sinusoidal", "activation": "silu", "bias": True, "tie_embeddings": True},
    "rest": {"norm": "layernorm", "position": "learned", "ngram_size": 3, "ngram_rows": 64},
    "faint": {"embedding_skip": True},
    "waves": {"position": "sinusoidal", "ngram_size": 3, "ngram_rows": 64},
    "learned": GPT_KIN | {"activation": "swiglu"},
}
CLASSES = dict.fromkeys([*FAMILIES, *SHAPES], SANCHO)
CLASSES |= dict.fromkeys(("classic", "gpt", "gpt-sinusoidal"), GPT2)
CLASSES |= dict.fromkeys(("qwen", "qwen-tied", "qwen-swiglu", "window"), QWEN3)
HOSTILE = "\n \"#'<>\\abcé—\u2028\U0001f600"
TEXTS = ("", "a", "\n\n  a  b\n", "abce\u0301\ncab  ", "\\\"<a>#'", "\u2028\U0001f600—\n")

slow = pytest.mark.slow  # transformers takes long to start
all_cases = pytest.mark.parametrize("name", CLASSES)


def small_checkpoint(model: ModelConfig, characters: str = TOKENIZER.characters) -> Checkpoint:
    progress = Progress(step=1234, tokens=5678000, val_loss=1.25)
    weights = random_weights(model, 3)
    return replace(checkpoint_of(model, characters), weights=weights, progress=progress)


def case(name: str) -> Checkpoint:
    if name in FAMILIES:
        return checkpoint.load(FOLDER / f"{name}.safetensors")
    saved = small_checkpoint(ModelConfig(**SIZE | PLAIN | SHAPES[name]))
    if name == "faint":  # beside the squares of these, what a norm adds to them counts
        saved.weights["token_embedding.weight"] *= 0.003
    return saved


@cache
def expected(name: str) -> dict:
    """Ids, their logits and how START goes on: as written down, or as the model computes it."""
    if name in FAMILIES:
        return json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    ids = random_ids(1, BLOCK, vocab_size=SIZE["vocab_size"])
    logits = exact_logits(case(name).build_model(), ids)[0]
    return {"ids": ids[0].tolist(), "logits": logits, "greedy": greedy_text(name, START, 60)}


def greedy_text(name: str, start: str, count: int) -> str:
    saved, greedy = case(name), SampleConfig(temperature=0)
    prompt, model = saved.tokenizer.encode(start), saved.build_numpy()
    (text,) = continue_texts(model, saved.tokenizer, prompt, greedy, max_new_tokens=count)
    return text


# --- which class ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("preset", "options", "expected"),
    [
        ("classic", {"activation": "swiglu"}, SANCHO),
        ("classic", {"qk_norm": True}, SANCHO),
        ("base", {"embedding_skip": False}, QWEN3),
        ("base", {"embedding_skip": False, "bias": True}, SANCHO),
        ("base", {"embedding_skip": False, "activation": "gelu"}, SANCHO),
        ("base", {"embedding_skip": False, "qk_norm": False}, SANCHO),
    ],
)
def test_the_class_of_each_preset_and_its_kin(preset, options, expected):
    small = {"n_layer": 1, "n_embd": 24, "vocab_size": 33, "block_size": 8, "ngram_rows": 16}
    model = replace(PRESETS[preset].model, **small, **options)
    assert export_of(small_checkpoint(model)).name == expected


# --- the folder -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["classic", "mini"])
def test_the_command_says_how_to_open_the_folder_which_has_code_where_it_is_needed(
    tmp_path, monkeypatch, name
):
    """And nothing besides, where Python keeps what it has compiled."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    out = tmp_path / "out"
    args = ("--checkpoint", FOLDER / f"{name}.safetensors", "--output", out)
    done = succeed("convert.py", "to-huggingface", *args)
    assert re.match(rf"{out}: {CLASSES[name]}, \d,\d+ parameters\n", done.err)
    has_code = CLASSES[name] == SANCHO
    assert ("trust_remote_code=True" in done.err) == has_code
    assert (out / "modeling_sancho.py").exists() == has_code
    assert [path.name for path in out.iterdir() if path.is_dir()] == []


# --- the model card -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["classic", "qwen", "mini"])
def test_the_card_tells_the_figures_in_both_languages(name):
    saved = replace(case(name), progress=Progress(step=1234, tokens=5678000, val_loss=1.25))
    card = model_card(saved, saved.build_numpy(), export_of(saved))
    assert not re.search(r"[«»$]", card.replace("$ ", ""))
    both = ("| 2 × 2 × 16 |", "1.2500 nats", f"({1.25 / math.log(2):.3f} bits)")
    each = ("| 1234 ", "\u202f678", "| 1,234 ", ",678,")
    assert [card.count(words) for words in both + each] == [2] * 3 + [1] * 4
    for other in (GPT2, QWEN3, SANCHO):
        assert card.count(f"`{other}`") == 2 * (other == CLASSES[name])
    # No loss without an evaluation, and no Markdown from a name.
    saved = replace(saved, progress=Progress(), corpus_name="a|b](http://x)<script>\n---\n# c")
    card = model_card(saved, saved.build_numpy(), export_of(saved))
    assert "nats" not in card
    assert "| a_b__http___x__script__---__ c |" in card


# --- what is done with a model in transformers -------------------------------------------------


@cache
def libraries() -> SimpleNamespace:
    """transformers, and our file for it, from where it lies."""
    transformers = pytest.importorskip("transformers")
    from sancho.convert import modeling_sancho

    return SimpleNamespace(transformers=transformers, ours=modeling_sancho)


def opened(folder: Path, saved: Checkpoint, **options):
    """Export a model and read it with our class or one of transformers' own."""
    name = write_folder(saved, folder).name
    found = libraries()
    reader = getattr(found.ours if name == SANCHO else found.transformers, name)
    return reader.from_pretrained(folder, **options)


@pytest.fixture
def mini(tmp_path):
    return opened(tmp_path / "mini", case("mini"))


def ids_of(text: str) -> torch.Tensor:
    return torch.from_numpy(TOKENIZER.encode(text).astype(np.int64))[None]


def write(model, ids: torch.Tensor, count: int, **options):
    return model.generate(
        ids, max_new_tokens=count, do_sample=False, return_dict_in_generate=True, **options
    )


def test_each_written_character_costs_one_read(mini):
    lengths: list[int] = []
    held = libraries().ours.CACHE
    mini.register_forward_pre_hook(
        lambda _, args, options: lengths.append(options["input_ids"].shape[1]), with_kwargs=True
    )
    out = write(mini, ids_of(START), 3)
    more = write(mini, out.sequences, ROOM - 3, past_key_values=getattr(out, held))
    assert lengths == [len(START)] + [1] * (ROOM - 1)
    assert TOKENIZER.decode(more.sequences[0, len(START) :]) == expected("mini")["greedy"][:ROOM]


def test_the_cache_is_taken_by_either_name(mini):
    ids = torch.tensor([expected("mini")["ids"]])
    for name in ("past_key_values", "cache"):
        held = getattr(mini(ids[:, :9], use_cache=True), libraries().ours.CACHE)
        rest = mini(ids[:, 9:], previous_ids=ids[:, 5:9], **{name: held}).logits
        torch.testing.assert_close(rest, mini(ids).logits[:, 9:], rtol=0, atol=1e-5)


def test_an_assistant_changes_nothing_and_goes_on_past_the_block(tmp_path):
    saved = small_checkpoint(ModelConfig(**SIZE | {"block_size": 96, "ngram_rows": 64}))
    other = replace(saved, weights=random_weights(saved.model_config, 5))
    model, assistant = opened(tmp_path / "a", saved), opened(tmp_path / "b", other)
    alone = write(model, ids_of(START), 60).sequences
    assert write(model, ids_of(START), 60, assistant_model=assistant).sequences.equal(alone)
    # Past the block each character is the likeliest after the newest part, which moves at once.
    (long,) = write(model, ids_of(START), 110, assistant_model=assistant).sequences
    assert len(long) == len(START) + 110
    for place in range(100, len(long)):
        assert model(long[None, 73:place]).logits[0, -1].argmax() == long[place]


@pytest.mark.parametrize(("dtype", "atol"), [("auto", 0), ("float16", 0.01), ("bfloat16", 0.1)])
@pytest.mark.parametrize("name", ["mini", "base", "rest", "learned", "waves", "sinusoidal"])
def test_it_computes_in_half_precision(tmp_path, name, dtype, atol):
    ids = torch.tensor([expected(name)["ids"]])
    exact = opened(tmp_path / "exact", case(name))(ids).logits
    model = opened(tmp_path / "half", case(name), dtype=dtype)
    assert model.dtype == (torch.float32 if dtype == "auto" else getattr(torch, dtype))
    difference = model(ids).logits.float() - exact
    assert difference.abs().max() <= atol * exact.std()
    assert write(model, ids[:, :9], 3).sequences.shape == (1, 12)


def trainer(model, folder: Path, rows: np.ndarray, **options):
    """Return a Trainer of windows, (n, T), that neither reports nor saves."""
    pytest.importorskip("accelerate")
    transformers = libraries().transformers
    quiet = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True}
    arguments = transformers.TrainingArguments(str(folder), **quiet, **options)
    # Transformers 4.57 counts the first label of a row, too, which nothing predicts, if it is one.
    data = [{"input_ids": row, "labels": [-100, *row[1:]]} for row in rows.tolist()]
    return transformers.Trainer(model, arguments, train_dataset=data, eval_dataset=data)


@pytest.mark.parametrize("size", [8, 4, 2, 1])
def test_micro_batches_of_trainer_add_up_to_the_same_step(mini, tmp_path, size):
    rows = random_ids(8, BLOCK, vocab_size=SIZE["vocab_size"])
    model = case("mini").build_model()
    ids = torch.from_numpy(rows)
    exact = cross_entropy(model(ids[:, :-1]), ids[:, 1:])
    exact.backward()
    before = mini.head.weight.detach().clone()
    batches = {"per_device_train_batch_size": size, "gradient_accumulation_steps": 8 // size}
    plain = {"optim": "sgd", "learning_rate": 1.0, "max_grad_norm": 1e9, "max_steps": 1}
    loss = trainer(mini, tmp_path / "run", rows, **batches, **plain).train().training_loss
    assert loss == pytest.approx(exact.item(), abs=1e-5)
    gradient = before - mini.head.weight.detach()
    torch.testing.assert_close(gradient, model.head.weight.grad, rtol=0, atol=1e-5)


def test_the_loss_of_trainer_is_that_of_evaluate(mini, tmp_path):
    saved = case("mini")
    T = BLOCK - 1  # of a row of BLOCK characters so many are predicted
    ids = random_ids(6 * T + 1, vocab_size=SIZE["vocab_size"])
    rows = np.lib.stride_tricks.sliding_window_view(ids, BLOCK)[::T]
    model = GPT.with_weights(replace(saved.model_config, block_size=T), saved.weights)
    run = trainer(mini, tmp_path / "run", rows, per_device_eval_batch_size=4)
    loss = validation_loss(model, ids)
    assert run.evaluate()["eval_loss"] == pytest.approx(loss, abs=1e-5)


@pytest.mark.parametrize("name", ["classic", "qwen", "mini"])
def test_the_card_pads_so_that_every_character_is_learned(tmp_path, name):
    model = opened(tmp_path, case(name))
    transformers = libraries().transformers
    card = (tmp_path / "README.md").read_text("utf-8")
    recipes = re.findall(r"^  ```python\n(.*?)^  ```", card, re.DOTALL | re.MULTILINE)
    assert len(recipes) == 2
    texts = ["uno\ndos\ntres\n", "la\n"]
    for recipe in recipes:
        tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
        everything = {"tokenizer": tokenizer, "texts": [*texts, TOKENIZER.characters]}
        with pytest.raises(ValueError, match="empty"):
            exec(textwrap.dedent(recipe), everything)
        exec(textwrap.dedent(recipe), {"tokenizer": tokenizer, "texts": texts})
        only_padding_is_masked(tokenizer, texts)
    added = 'tokenizer.add_special_tokens({"pad_token": "[PAD]"})'
    resized = "model.resize_token_embeddings(len(tokenizer))"
    assert card.count(f"`{added}`") == card.count(f"`{resized}`") == 2
    exec(f"{added}; {resized}", {"tokenizer": tokenizer, "model": model})
    batch = only_padding_is_masked(tokenizer, texts)
    assert model(**batch).loss.isfinite()


def only_padding_is_masked(tokenizer, texts: list[str]):
    collate = libraries().transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)
    batch = collate([tokenizer(text) for text in texts])
    assert not batch["attention_mask"].all()
    learned = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    assert batch["labels"].equal(learned)
    return batch


def test_what_tutorials_ask_of_a_model_is_given(mini, tmp_path):
    ids = torch.tensor([expected("mini")["ids"]])
    out = mini(ids, labels=ids, output_hidden_states=True)
    assert len(out.hidden_states) == mini.config.n_layer + 1
    torch.testing.assert_close(mini.head(out.hidden_states[-1]), out.logits)
    assert len(write(mini, ids[:, :9], 2, output_hidden_states=True).hidden_states) == 2
    torch.testing.assert_close(mini(ids, logits_to_keep=3).logits, out.logits[:, -3:])
    torch.testing.assert_close(mini(ids, labels=ids, return_dict=False)[1], out.logits)
    fast = opened(tmp_path / "sdpa", case("mini"), attn_implementation="sdpa")
    assert fast(ids).logits.equal(out.logits)
    mini.resize_token_embeddings(40)
    wide = mini(ids, labels=ids)
    assert wide.loss.isfinite()
    torch.testing.assert_close(wide.logits[..., : SIZE["vocab_size"]], out.logits)


def test_gpt2_drops_as_much_as_the_model_does_where_it_is_trained_on(tmp_path):
    """The embedding, and what each block adds to it, but no weights of attention."""
    saved = small_checkpoint(ModelConfig(**SIZE | PLAIN | GPT_KIN | {"dropout": 0.25}))
    body = opened(tmp_path / "gpt", saved).transformer
    (attention, feed_forward), *_ = ((block.attn, block.mlp) for block in body.h)
    for dropped in (body.drop, attention.resid_dropout, feed_forward.dropout):
        assert dropped.p == saved.model_config.dropout
    assert attention.attn_dropout.p == 0


def test_gradient_checkpointing_changes_no_gradient(mini):
    ids = torch.tensor([expected("mini")["ids"]])
    gradients = []
    for _ in range(2):
        mini.train().zero_grad()
        mini(ids, labels=ids).loss.backward()
        gradients.append(mini.blocks[0].attention.qkv.weight.grad.clone())
        mini.gradient_checkpointing_enable()
    assert mini.is_gradient_checkpointing
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("name", ["position_ids", "output_attentions", "token_type_ids"])
def test_what_a_model_does_not_know_is_refused_by_name(mini, name):
    ids = ids_of(START)
    with pytest.raises(ValueError, match=name):
        mini(ids, **{name: ids})
    if name != "output_attentions":
        with pytest.raises(ValueError, match=name):
            write(mini, ids, 2, **{name: ids})


def test_other_caches_and_embeddings_are_refused(mini):
    with pytest.raises(ValueError, match="DynamicCache"):
        write(mini, ids_of(START), 2, cache_implementation="static")
    with pytest.raises(TypeError, match="input_ids"):
        mini(inputs_embeds=torch.zeros(1, 3, mini.config.n_embd))


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

def attempt(function, *args, **options):
    try:
        return function(*args, **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def go_on(model, tokenizer, texts, count, cache):
    inputs = tokenizer(texts, padding=len(texts) > 1, return_tensors="pt")
    ids = model.generate(**inputs, max_new_tokens=count, do_sample=False, use_cache=cache)
    new = ids[:, inputs["input_ids"].shape[1] :]
    return [tokenizer.decode(row, skip_special_tokens=True) for row in new]

def run_card(folder):
    code = re.search("```python\\n(.*?)```", open(f"{folder}/README.md").read(), re.DOTALL)[1]
    code = code.replace('folder = "."', f'folder = "{folder}"')
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, {})
    return out.getvalue()

def answers(name, ids):
    model, tokenizer, info = load(name)
    ids, starts, room = torch.tensor([ids]), given["starts"], given["room"]
    found = {"class": type(model).__name__, "info": [key for key, value in info.items() if value]}
    found["logits"] = model(ids).logits[0].tolist()
    found["loss"] = model(ids, labels=ids).loss.item()
    found["card"] = run_card(name)
    tokenizer.pad_token = tokenizer.convert_ids_to_tokens(3)
    found["texts"] = [
        [
            attempt(go_on, model, tokenizer, texts, count, cache)
            for texts, count in ((starts[:1], room), (starts, room), (starts[:1], 60))
        ]
        for cache in (True, False)
    ]
    model.save_pretrained(f"{name}-again")
    tokenizer.save_pretrained(f"{name}-again")
    found["again"] = load(f"{name}-again")[0](ids).logits[0].tolist()
    # From the shape alone; then what is learned of a text, but none that follows from the shape.
    anew = type(model)(model.config).eval()
    keys = {key: tensor for key, tensor in model.named_buffers() if key.endswith("keys")}
    anew.load_state_dict(dict(model.named_parameters()) | keys, strict=False)
    found["anew"] = anew(ids).logits[0].tolist()
    if name == "window":
        found["long"] = model(torch.tensor([given["long"]])).logits[0].tolist()
    return found | (with_a_cache(model, ids) if name == "mini" else {})

def with_a_cache(model, ids):
    cache = model(ids[:, :9], use_cache=True).past_key_values
    refused = [
        attempt(model, ids[:, 9:], past_key_values=cache),
        attempt(model, ids[:, 9:], past_key_values=cache, previous_ids=ids[:, 6:9]),
    ]
    model(ids[:, 9:], past_key_values=cache, previous_ids=ids[:, 5:9])
    refused.append(attempt(model, ids[:, :1], past_key_values=cache, previous_ids=ids[:, -4:]))
    return {"refused": refused}

def tokens(texts):
    tokenizer = AutoTokenizer.from_pretrained("hostile")
    ids = [tokenizer(text)["input_ids"] for text in texts]
    return {
        "size": len(tokenizer),
        "longest": tokenizer.model_max_length,
        "keys": list(tokenizer("a")),
        "ids": ids,
        "texts": [tokenizer.decode(row) for row in ids],
        "clean": [tokenizer.decode(row, skip_special_tokens=True) for row in ids],
        "unknown": attempt(tokenizer, "abX"),
    }

given = json.load(sys.stdin)
with torch.no_grad():
    found = {name: answers(name, ids) for name, ids in given["ids"].items()}
json.dump(found | {"tokens": tokens(given["texts"])}, open("answers.json", "w"))
"""

ROOM = BLOCK - len(START)
LONG = random_ids(3 * BLOCK, vocab_size=SIZE["vocab_size"]).tolist()


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> dict:
    """What transformers says of each case and of the tokenizer."""
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    folder = tmp_path_factory.mktemp("folders")
    for name in CLASSES:
        write_folder(case(name), folder / name)
    shape = {"vocab_size": len(HOSTILE), "block_size": 8, "n_layer": 1, "n_embd": 4}
    hostile = small_checkpoint(ModelConfig(**shape | PLAIN), HOSTILE)
    write_folder(hostile, folder / "hostile")
    given = {"starts": [START, START[-4:]], "room": ROOM, "long": LONG, "texts": TEXTS}
    given["ids"] = {name: expected(name)["ids"] for name in CLASSES}
    done = subprocess.run(
        [sys.executable, "-I", "-c", READ],
        input=json.dumps(given).encode(),
        cwd=folder,
        env=os.environ | {"HF_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return json.loads((folder / "answers.json").read_text("utf-8"))


@slow
@all_cases
def test_logits_are_ours(answers, name):
    found = answers[name]
    assert (found["class"], found["info"]) == (CLASSES[name], [])
    logits = np.array(expected(name)["logits"])
    np.testing.assert_allclose(found["logits"], logits, rtol=0, atol=1e-4)
    targets = torch.tensor(expected(name)["ids"][1:])
    loss = torch.nn.functional.cross_entropy(torch.from_numpy(logits[:-1]), targets).item()
    assert found["loss"] == pytest.approx(loss, abs=1e-4)
    np.testing.assert_allclose(found["anew"], found["logits"], rtol=0, atol=1e-5)
    assert found["again"] == found["logits"]  # what transformers saved and read


@slow
@all_cases
def test_texts_are_ours_side_by_side_and_past_the_block_as_the_card_says(answers, name):
    greedy, (cached, anew) = expected(name)["greedy"], answers[name]["texts"]
    for alone, beside, long in (cached, anew):
        assert alone == [greedy[:ROOM]]
        assert beside == [greedy[:ROOM], greedy_text(name, START[-4:], ROOM)]
        if CLASSES[name] == GPT2:
            assert long.startswith("IndexError")
        elif CLASSES[name] == SANCHO:
            assert long == [greedy]
        else:
            assert long == cached[2]
            assert len(long[0]) == 60
    card = answers[name]["card"].removesuffix("\n")  # what the code on it writes
    assert 2 <= len(card) <= BLOCK
    assert set(card) <= set(TOKENIZER.characters)


@slow
def test_qwen_attends_to_one_block_and_no_further(answers):
    """With one layer, the last BLOCK characters decide each prediction."""
    windows = np.lib.stride_tricks.sliding_window_view(LONG, BLOCK).copy()
    logits = exact_logits(case("window").build_model(), windows)[:, -1]
    np.testing.assert_allclose(answers["window"]["long"][BLOCK - 1 :], logits, rtol=0, atol=1e-4)


@slow
def test_with_a_cache_the_table_asks_for_what_came_before(answers):
    needs, needs_more, past = answers["mini"]["refused"]
    assert "4 previous_ids" in needs and needs == needs_more
    assert "block_size" in past


@slow
def test_the_tokenizer_is_ours(answers):
    found, tokenizer = answers["tokens"], CharTokenizer(HOSTILE)
    assert (found["size"], found["longest"]) == (len(HOSTILE), 8)
    assert found["keys"] == ["input_ids", "attention_mask"]
    assert found["ids"] == [tokenizer.encode(text).tolist() for text in TEXTS]
    assert found["texts"] == found["clean"] == [tokenizer.decode(ids) for ids in found["ids"]]
    assert "Missing [UNK] token" in found["unknown"]
