"""What a script does before it imports its packages; test_without_torch.py has its errors."""

import os
import signal
import subprocess
import sys

import pytest
from conftest import ROOT

INTERRUPTED = "import os, signal, sys; os.kill(os.getpid(), signal.SIGINT); sys.exit('not heard')"


@pytest.mark.skipif(sys.platform == "win32", reason="here: no signals of POSIX")
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
