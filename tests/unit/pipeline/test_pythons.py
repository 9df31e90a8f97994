"""The check that Spark's Python has Barnabas, for Pythons that have it and that lack it."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.pipeline.spark.pythons import NoBarnabas, require_barnabas


def session_of(program: str) -> Any:
    """Return what the check asks of a session whose Python is a program."""
    return SimpleNamespace(sparkContext=SimpleNamespace(pythonExec=program))


def test_python_of_this_process_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    require_barnabas(session_of(sys.executable))
    folder, name = os.path.split(sys.executable)
    monkeypatch.setenv("PATH", folder)
    require_barnabas(session_of(name))


def test_python_that_lacks_a_module_is_refused_with_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    bare = str(tmp_path / "bare/bin/python")
    with pytest.raises(NoBarnabas) as refusal:
        require_barnabas(session_of(bare))
    assert str(refusal.value) == (
        f"Spark starts its Python processes with {bare}, which lacks barnabas, crc32c, numpy, "
        f"pyarrow: set PYSPARK_PYTHON={sys.executable} in the environment before the session is "
        "created"
    )


def test_python_that_is_not_there_or_does_not_start_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoBarnabas, match="no-such-python, which is not found: set PYSPARK_PYTHON="):
        require_barnabas(session_of("no-such-python"))
    broken = tmp_path / "python3"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(NoBarnabas, match="which lacks what it needs to start: set PYSPARK_PYTHON="):
        require_barnabas(session_of(str(broken)))
