"""What a script does before it imports its packages; test_without_torch.py has its errors."""

import os
import signal
import subprocess
import sys

import pytest
from conftest import ROOT

posix = pytest.mark.skipif(sys.platform == "win32", reason="here: no signals of POSIX")
INTERRUPTED = "import os, signal, sys; os.kill(os.getpid(), signal.SIGINT); sys.exit('not heard')"


@posix
@pytest.mark.parametrize("script", ["train.py", "sample.py", "evaluate.py", "convert.py"])
def test_an_interrupt_while_packages_are_imported_is_one_line(tmp_path, script):
    (tmp_path / "numpy.py").write_text(INTERRUPTED)
    command = [sys.executable, ROOT / script, *(["to-page"] if script == "convert.py" else [])]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        timeout=60,
        # Where the tests run in the background, the signal is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"\ninterrupted\n")


@posix
def test_a_ctrl_c_that_the_shell_lets_a_script_ignore_is_not_heard(tmp_path):
    """As in the background of another script, whose Ctrl+C is not meant for it."""
    (tmp_path / "numpy.py").write_text(INTERRUPTED)
    done = subprocess.run(
        [sys.executable, ROOT / "sample.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert (done.returncode, done.stderr) == (1, "not heard\n")


@pytest.mark.parametrize("script", ["sample.py", "evaluate.py"])
def test_threads_are_configured_before_the_libraries_are_loaded(tmp_path, monkeypatch, script):
    """What the user has set stays."""
    numpy = "import os, sys; sys.exit('threads ' + os.environ['OPENBLAS_NUM_THREADS'])"
    (tmp_path / "numpy.py").write_text(numpy)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    for expected in ("7", "1"):
        # In the project's folder: it need not be installed.
        command = [sys.executable, ROOT / script]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        assert done.stderr.strip() == f"threads {expected}"
        monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
