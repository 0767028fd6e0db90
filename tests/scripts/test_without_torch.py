"""What writes never imports PyTorch; what needs it says in one line how to install it.

Where there is none, too: python -m pytest --noconftest tests/scripts/test_without_torch.py
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from golden.writing import assert_is_golden

from sancho import checkpoint
from sancho.command import preflight
from sancho.machine import packages

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
WRITING = {
    "sample.py --max_new_tokens 9": "",
    "sample.py --checkpoint MODEL --start en --device cpu --dtype float32 --num_samples 2": "",
    "convert.py to-page --checkpoint MODEL": "sancho.html",
    "convert.py to-huggingface --checkpoint MODEL": "sancho-huggingface/model.safetensors",
}
NEEDING = ["train.py --help", "evaluate.py", "convert.py to-onnx"]
NEEDING += ["sample.py --checkpoint MODEL --start en --device cuda"]
MISSING = "import runpy, sys; sys.modules['torch'] = None; del sys.argv[0]; "
MISSING += "runpy.run_path(sys.argv[0], run_name='__main__')"


def run(folder, line, *launch, code="raise AssertionError"):
    """Run a script in a folder where whoever imports PyTorch imports a mistake."""
    script, *args = line.split()
    args = [GOLDEN / "mini.safetensors" if word == "MODEL" else word for word in args]
    (folder / "torch.py").write_text(code)
    command = [sys.executable, *launch, ROOT / script, *args]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
    options = {"capture_output": True, "encoding": "utf-8", "timeout": 120}
    return subprocess.run(command, env=environment, cwd=folder, **options)


@pytest.mark.parametrize(("line", "made"), WRITING.items())
def test_what_needs_no_torch_imports_none(tmp_path, line, made):
    """But to-huggingface, where transformers is there to open what it made."""
    done = run(tmp_path, line, "-c", MISSING.replace("torch", "transformers"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / made).exists() and bool(done.stdout) == (not made)


@pytest.mark.parametrize("line", NEEDING)
def test_what_needs_torch_says_in_one_line_how_to_install_it(tmp_path, line):
    done = run(tmp_path, line, "-c", MISSING)
    assert (done.returncode, done.stdout) == (2, "")
    (said,) = done.stderr.splitlines()
    assert said.startswith(f"{line.split()[0]}: error: {sys.executable} lacks torch; ")
    assert f": {sys.executable} -m pip install torch --index-url https://downl" in said


@pytest.mark.parametrize("line", [*WRITING, *NEEDING])
def test_all_that_is_missing_is_named_in_one_line(tmp_path, line):
    hidden = MISSING.replace("sys.modules['torch']", "sys.modules['numpy'] = sys.modules['tqdm']")
    done = run(tmp_path, line, "-c", hidden)
    assert (done.returncode, done.stdout) == (2, "")
    (said,) = done.stderr.splitlines()
    assert " lacks numpy tqdm" in said and " -m pip install numpy tqdm" in said


@pytest.mark.parametrize("line", NEEDING[:2])
def test_what_trains_names_torch_with_all_else_that_is_missing(tmp_path, line):
    hidden = MISSING.replace("sys.modules['torch']", "sys.modules['tqdm'] = sys.modules['torch']")
    done = run(tmp_path, line, "-c", hidden)
    assert (done.returncode, done.stdout) == (2, "")
    (said,) = done.stderr.splitlines()
    assert " lacks tqdm torch; " in said and " -m pip install tqdm" in said
    assert " -m pip install torch --index-url https://" in said


BROKEN = {
    "raise OSError(126, 'The specified module could not be found', 'fbgemm.dll')": "fbgemm.dll",
    "raise ImportError('libtorch.so: cannot\\nopen it')": "(libtorch.so: cannot open it)",
    "import numpy.of_yesterday": "No module named 'numpy.of_yesterday'",
    "raise AttributeError('_ARRAY_API not found')": "_ARRAY_API not found",
    "": "has no attribute '__version__'",
    "__version__ = '2.2.2+cpu'": "PyTorch is version 2.2.2+cpu, and 2.9 or later is needed",
}


@pytest.mark.parametrize("line", ["train.py", "evaluate.py", *NEEDING[2:]])
@pytest.mark.parametrize(("code", "words"), BROKEN.items(), ids=range(len(BROKEN)))
def test_a_torch_that_cannot_be_used_is_one_line(tmp_path, line, code, words):
    done = run(tmp_path, line, code=code)
    assert (done.returncode, done.stdout) == (2, "")
    (said,) = done.stderr.splitlines()
    assert said.startswith(f"{line.split()[0]}: error: PyTorch ") and words in said
    assert f"; {sys.executable} -m pip install --" in said
    assert "; sample.py (without --device) and docs/index.html write without PyTorch" in said


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise ImportError('IMPORTANT') from OSError('libblas.so')", "be loaded (libblas.so); "),
        ("__version__ = '1.26.4'", "NumPy is version 1.26.4, and 2.0 or later is needed; "),
    ],
)
@pytest.mark.parametrize("line", [*WRITING, *NEEDING])
def test_a_numpy_that_cannot_be_used_is_one_line(tmp_path, line, code, words):
    (tmp_path / "numpy.py").write_text(code)
    done = run(tmp_path, line)
    assert (done.returncode, done.stdout) == (2, "")
    (said,) = done.stderr.splitlines()
    assert words in said and " -m pip install --" in said and "sample.py writes" not in said


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("train.py --lr 3", "unknown option --lr; here it is called --learning_rate"),
        ("train.py --n_layer x", "--n_layer: invalid int value: 'x'"),
        ("train.py --preset base --n_head 6 mine.txt", "give it as --corpus mine.txt"),
        ("evaluate.py --start x", "unknown option --start; --help lists all options"),
    ],
)
def test_what_is_mistyped_is_told_before_torch_is_loaded(tmp_path, line, words):
    done = run(tmp_path, line)
    assert (done.returncode, done.stdout) == (2, "")
    (said,) = done.stderr.splitlines()
    assert words in said


def old_python(version):
    """Return how a Python calls itself, or skip the test; pyenv keeps its own in a folder."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    of_pyenv = sorted(pyenv.glob(f"versions/{version}.*/bin/python"))
    for python in filter(None, [shutil.which(f"python{version}"), *of_pyenv]):
        command = [python, "-c", "import sys; print(sys.executable)"]
        done = subprocess.run(command, capture_output=True, encoding="utf-8")
        if done.returncode == 0:  # a command of pyenv may be for a Python that is not chosen
            return done.stdout.strip()
    pytest.skip(f"here: there is no Python {version}")


@pytest.mark.parametrize("version", ["3.6", "3.7", "3.8", "3.9"])
def test_a_python_that_is_too_old_says_so(version):
    python = old_python(version)
    for script in ("train.py", "sample.py", "evaluate.py", "convert.py"):
        command = [python, "-B", ROOT / script, "--help"]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=120)
        assert (done.returncode, done.stdout) == (2, "")
        said = f"{Path(script).name}: error: this needs Python 3.10 or later, and {python} is "
        assert done.stderr == f"{said}Python {version}; start it with a newer one\n"


def test_a_python_of_the_system_is_told_to_have_an_environment(monkeypatch, capsys):
    """Debian's pip refuses to install packages into it."""
    monkeypatch.setattr(packages, "_is_managed", lambda: True)
    with pytest.raises(SystemExit) as stop:
        preflight.require("numpy", "no_such_package")
    said = capsys.readouterr().err
    assert (stop.value.code, said.count("\n")) == (2, 1)
    assert "lacks no_such_package, and the system does not let you install" in said
    own = ".venv/bin/python" if os.name != "nt" else ".venv\\Scripts\\python"
    assert f" -m venv .venv, then {own} -m pip install torch --index-url https://" in said
    assert f", then {own} -m pip install -r " in said and said.endswith(f"{own}\n")


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.safetensors")), ids=lambda path: path.stem)
def test_numpy_computes_and_writes_what_the_golden_files_say(path):
    saved = checkpoint.load(path)
    model = saved.build_numpy()
    assert_is_golden(path, model.logits, model, saved.tokenizer)
