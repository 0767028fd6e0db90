"""The libraries' threads leave the cores to other programs, unless the user wants it otherwise."""

import os
import subprocess
import sys

import pytest
from conftest import ROOT

from sancho.machine.environment import calm_threads

SETTINGS = {"OPENBLAS_NUM_THREADS": "1", "GOMP_SPINCOUNT": "20000", "KMP_BLOCKTIME": "0"}


def test_what_the_user_has_set_stays(monkeypatch):
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    calm_threads()
    assert {name: os.environ[name] for name in SETTINGS} == SETTINGS | {"GOMP_SPINCOUNT": "7"}


@pytest.mark.parametrize("script", ["train.py", "sample.py", "evaluate.py"])
def test_a_script_sets_them_before_the_libraries_are_loaded(script):
    command = [sys.executable, "-X", "importtime", ROOT / script, "--no-such-option"]
    report = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    loaded = [line.rpartition("|")[2].strip() for line in report.splitlines() if "|" in line]
    # A module is listed once its own imports are.
    settings = loaded.index("sancho.machine.environment")
    assert settings < min(loaded.index(name) for name in ("numpy", "torch") if name in loaded)
