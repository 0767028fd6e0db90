"""The documents: whose figures they quote, and that their blocks run.

`-m slow` runs what READMEs and docs tell a reader to type, without a network, in a copy of the
project, with a few steps where it trains. Both languages have the same blocks (test_pages.py), so
the English ones are enough.
"""

import ast
import os
import pickle
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import ROOT, randomise
from test_pages import ALL_PAGES, PAIRS, PARSERS, commands, page, programs, prose
from torch import nn
from torch.nn import functional as F

from sancho import checkpoint
from sancho.text.sources import ONLINE

MEASURED = ["benchmarks/README.md", "sancho/pretrained/README.md"]
"""Where figures stand with the command that measures them."""
QUOTING = ["README.md", "README.es.md"]
"""Pages that quote them."""
BLOCK = re.compile(r"(<!-- needs: .+ -->\n)?^```(bash|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
STEPS = 3
CHARACTERS = "\n aeñ𝕏"


def is_measured(figure: str, measured: str) -> bool:
    """Return whether a number in `measured` is `figure`, or becomes it by rounding."""
    places = len(figure.partition(".")[2])
    numbers = map(float, re.findall(r"\d+(?:\.\d+)?", measured.replace(",", "")))
    return any(f"{number:.{places}f}" == figure for number in numbers)


@pytest.mark.parametrize("name", QUOTING)
def test_a_figure_that_is_quoted_stands_in_a_table(name):
    """Numbers with three decimals or more, those before "times" or "veces", and times as 1:18."""
    measured = "\n".join(prose(page(source)) for source in MEASURED)
    text = prose(page(name))
    figures = re.findall(r"\d+\.\d{3,}", text) + re.findall(r"([\d.]+) (?:times|veces)", text)
    missing = {figure for figure in figures if not is_measured(figure, measured)}
    for minutes, seconds in re.findall(r"(?<![\d:])(\d+):(\d\d)(?![\d:])", text):
        duration = f"{minutes}:{seconds}"
        in_seconds = str(60 * int(minutes) + int(seconds))
        is_told = re.search(rf"(?<![\d:]){duration}(?![\d:])", measured)
        if not is_told and not is_measured(in_seconds, measured):
            missing.add(duration)
    assert missing == set()


def test_the_block_that_a_readme_shows_is_the_models_but_for_its_types():
    [shown] = [ast.parse(code) for code in programs(page("README.md")) if "class Block" in code]
    [block] = [
        n for n in ast.parse(page("sancho/model.py")).body if getattr(n, "name", "") == "Block"
    ]
    functions = [n for n in ast.walk(block) if isinstance(n, ast.FunctionDef)]
    for function in functions:
        function.returns = None
        for argument in function.args.args:
            argument.annotation = None
    for node in (block, *functions):
        if ast.get_docstring(node):
            del node.body[0]
    assert ast.unparse(block) == ast.unparse(shown)


# Commands that no test runs as they stand, and who does.
ELSEWHERE = {
    r"(\S*/)?python3? -m venv|source |(\S*/)?pip |npm |pre-commit ": "a reader: the network",
    r"(\S*/)?python -m pytest|(\S*/)?sphinx-build ": ".ci/run",
    r"(\S*/)?jupyter ": "a reader, in a browser",
    r"python notebooks/probar.py": "the course's own tests",
    r"python sancho/pretrained/make.py": "hours, once: its page says what came of it",
    r"(torchrun|python -m torch.distributed.run) ": "test_distributed.py",
    r"python train.py .*--activation mish": "test_changing.py, once there is such a name",
}


@pytest.mark.parametrize("name", ALL_PAGES)
def test_every_command_of_every_page_is_somebodys_to_try(name, tmp_path, monkeypatch):
    """A script of ours reads the options; a benchmark has them; all others stand above."""
    monkeypatch.chdir(tmp_path)
    for place in ("out/last.safetensors", "out/best.safetensors"):
        Path(place).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / "tests" / "golden" / "mini.safetensors", place)
    for _, line in commands(page(name)):
        for part in re.split(r"&&|\|+|;|[()]", line.replace("\\", "/")):
            words = shlex.split(part)
            if words in ([], ["true"]):
                continue
            scripts = [word for word in words if word in PARSERS]
            if any(re.match(kind, part.strip()) for kind in ELSEWHERE):
                continue
            if scripts:
                given = words[words.index(scripts[0]) + 1 :]
                PARSERS[scripts[0]]([re.sub(r"^(cuda|mps)$", "cpu", word) for word in given])
            else:
                benchmark = re.search(r"benchmarks/\w+\.py", part)
                assert benchmark, part
                own = (ROOT / benchmark[0]).read_text(encoding="utf-8")
                shared = (ROOT / "benchmarks" / "common.py").read_text(encoding="utf-8")
                options = re.findall(r"--\w+", part.partition(" -- ")[0])
                assert [o for o in options if f'"{o}"' not in own + shared] == [], part


def as_run_here(command: str) -> list[str]:
    """Return the words of a command with a few steps of training; [] where it is left out."""
    words = shlex.split(command)
    is_the_readers = {"pytest", "venv", "git", "npm"} & {*words} or words[0].endswith("pip")
    if is_the_readers:
        return []
    python = [sys.executable, *(["-m", "torch.distributed.run"] if "torchrun" in words else [])]
    words = python + words[1:]
    if "--max_iters" in words:
        words[words.index("--max_iters") + 1] = str(2 * STEPS)
    elif "train.py" in words:
        words += ["--max_iters", str(STEPS)]
    return words


def run_block(kind: str, code: str, folder: Path) -> None:
    """Run a block as a reader would."""
    typed = [[sys.executable, "-c", code]]
    if kind == "bash":
        lines = [line for _, line in commands(f"```bash\n{code}```")]
        typed = [as_run_here(part) for line in lines for part in line.split("&&")]
    environment = os.environ | {"PYTHONPATH": "", "PYTHONUTF8": "1"}
    environment |= {"https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}
    options = {"cwd": folder, "env": environment, "encoding": "utf-8", "timeout": 900}
    for words in filter(None, typed):
        done = subprocess.run(words, capture_output=True, **options)
        assert done.returncode == 0, f"{shlex.join(words)}\n{done.stderr[-2000:]}"


def nanogpt_block(C: int, bias: bool) -> nn.ModuleDict:
    attention = {"c_attn": nn.Linear(C, 3 * C, bias), "c_proj": nn.Linear(C, C, bias)}
    feed_forward = {"c_fc": nn.Linear(C, 4 * C, bias), "c_proj": nn.Linear(4 * C, C, bias)}
    parts = {"attn": nn.ModuleDict(attention), "mlp": nn.ModuleDict(feed_forward)}
    parts |= {"ln_1": nn.LayerNorm(C, bias=bias), "ln_2": nn.LayerNorm(C, bias=bias)}
    return nn.ModuleDict(parts)


class NanoGPT(nn.Module):
    """A GPT-2 of PyTorch's own parts, whose weights have the names that nanoGPT gives them."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        V, C, block_size = len(CHARACTERS), 16, 8
        self.arguments = {"n_layer": 2, "n_head": 2, "n_embd": C, "block_size": block_size}
        self.arguments |= {"bias": bias, "vocab_size": V, "dropout": 0.1}
        parts = {
            "wte": nn.Embedding(V, C),
            "wpe": nn.Embedding(block_size, C),
            "h": nn.ModuleList([nanogpt_block(C, bias), nanogpt_block(C, bias)]),
            "ln_f": nn.LayerNorm(C, bias=bias),
        }
        self.transformer = nn.ModuleDict(parts)
        self.lm_head = nn.Linear(C, V, bias=False)
        self.lm_head.weight = parts["wte"].weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the logits, (B, T, V)."""
        parts = self.transformer
        x = parts["wte"](ids) + parts["wpe"].weight[: ids.shape[1]]
        for block in parts["h"]:
            qkv = block["attn"]["c_attn"](block["ln_1"](x))
            heads = qkv.unflatten(-1, (3, self.arguments["n_head"], -1))  # (B, T, 3, H, D)
            q, k, v = heads.permute(2, 0, 3, 1, 4)
            found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + block["attn"]["c_proj"](found.transpose(1, 2).flatten(2))
            hidden = F.gelu(block["mlp"]["c_fc"](block["ln_2"](x)))
            x = x + block["mlp"]["c_proj"](hidden)
        return self.lm_head(parts["ln_f"](x))


def write_nanogpt(folder: Path, bias: bool = True, prefix: str = "") -> NanoGPT:
    """Write what nanoGPT's prepare.py and train.py leave; return the model."""
    model = randomise(NanoGPT(bias))
    weights = {f"{prefix}{name}": weight for name, weight in model.state_dict().items()}
    weights[f"{prefix}transformer.h.0.attn.bias"] = torch.ones(8, 8).tril()  # as it was until 2023
    saved = {"model": weights, "model_args": model.arguments, "iter_num": 250}
    torch.save(saved | {"best_val_loss": torch.tensor(1.75)}, folder / "ckpt.pt")
    meta = {"vocab_size": len(CHARACTERS), "itos": dict(enumerate(CHARACTERS))}
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta))
    return model


@pytest.mark.parametrize(("bias", "prefix"), [(True, "_orig_mod."), (False, "")])
def test_the_lines_for_a_model_of_nanogpt_make_a_checkpoint_of_it(
    bias, prefix, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    model = write_nanogpt(tmp_path, bias, prefix)
    (code,) = (code for code in programs(page("docs/exports.md")) if "ckpt.pt" in code)
    exec(code, {})
    saved = checkpoint.load("nanogpt.safetensors")
    assert (saved.characters, saved.progress.step) == (CHARACTERS, 250)
    ids = torch.tensor([[0, 3, 1, 5, 2, 2, 4, 0], [1, 1, 0, 2, 5, 3, 3, 4]])
    with torch.inference_mode():
        torch.testing.assert_close(saved.build_model()(ids), model(ids), rtol=0, atol=1e-5)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the project, with what the pages suppose a reader to have."""
    folder = tmp_path / "sancho-mini"
    left_out = ".* node_modules build out out-* *.egg-info __pycache__ *.ipynb".split()
    downloaded = [f"{text}.txt" for text in ONLINE]
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*left_out, *downloaded))
    text = (ROOT / "data" / "apocrifo.txt").read_text(encoding="utf-8")
    for name in ("my_text.txt", "part1.txt", "part2.txt"):
        (folder / name).write_text(name + text[:60_000], encoding="utf-8")
    write_nanogpt(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_the_blocks_of_a_page_run(name, copy):
    blocks = [(kind, code) for needs, kind, code in BLOCK.findall(page(name)) if not needs]
    assert blocks
    if "onnxruntime" in page(name):
        pytest.importorskip("onnxruntime")
        pytest.importorskip("transformers")
    if not any("train.py" in code for _, code in blocks):
        run_block("bash", "python train.py --corpus apocrifo\n", copy)
    for kind, code in blocks:
        run_block(kind, code, copy)
