"""The check that Spark's Python has Barnabas, for Pythons that have it and that lack it."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions

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


class Server:
    """A session of Spark Connect, whose functions run in this process."""

    __module__ = "pyspark.sql.connect.session"

    def __init__(self, failure: str | None = None) -> None:
        self._failure = failure

    def range(self, _: int) -> "Server":
        return self

    def select(self, column: Callable[[], str]) -> "Server":
        self._column = column
        return self

    def collect(self) -> list[tuple[str]]:
        if self._failure is not None:
            raise PySparkException(self._failure)
        return [(self._column(),)]


@pytest.fixture
def columns_without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def udf(function: Callable[..., str], _: str) -> Callable[..., Callable[[], str]]:
        # Pickled by its value: the server imports no module of ours for it.
        assert function.__module__ == "__main__"
        return lambda *names: lambda: function(*names)

    monkeypatch.setattr(functions, "udf", udf)
    monkeypatch.setattr(functions, "lit", lambda text: text)


@pytest.mark.usefixtures("columns_without_spark")
def test_connect_server_that_lacks_modules_is_refused_with_what_to_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server: Any = Server()
    require_barnabas(server)
    find = importlib.util.find_spec
    absent = ("barnabas", "crc32c")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in absent else find(name)
    )
    with pytest.raises(NoBarnabas) as refusal:
        require_barnabas(server)
    assert str(refusal.value) == (
        "the Spark Connect server's Python lacks barnabas, crc32c: run pip install "
        "'barnabas[spark]' there, or set PYSPARK_PYTHON where the server starts"
    )


OF_A_BARE_PYTHON = """
  An exception was thrown from the Python worker. Please see the stack trace below.
[PYTHON_EXCEPTION] An exception was thrown from the Python worker: \
Traceback (most recent call last):
  File "/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", line 4207, in invoke_udf
    func, profiler, deserializer, serializer = read_udfs(
                                               ^^^^^^^^^^
  File "/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", line 2845, in read_udfs
    import pyarrow as pa
ModuleNotFoundError: No module named 'pyarrow'
 SQLSTATE: 38000
"""
"""The error of a Spark Connect server 4.3.0 whose Python has the standard library alone."""
OF_ANOTHER_VERSION = """
  An exception was thrown from the Python worker. Please see the stack trace below.
[PYTHON_EXCEPTION] An exception was thrown from the Python worker: \
Traceback (most recent call last):
  File "/opt/spark/python/lib/pyspark.zip/pyspark/worker_util.py", line 93, in check_python_version
    raise PySparkRuntimeError(
pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has \
different version: 3.12 than that in driver: 3.11, PySpark cannot run with different minor versions.
Please check environment variables PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON are correctly set.
 SQLSTATE: 38000"""
OF_NO_PYTHON = (
    "Job aborted due to stage failure: Task 1 in stage 0.0 failed 1 times, most recent failure: "
    "Lost task 1.0 in stage 0.0 (TID 1) (10.0.0.1 executor driver): java.io.IOException: Cannot "
    'run program "/no/python" (in directory "/tmp/spark-1/userFiles-1"): error=2, No such file'
)


@pytest.mark.usefixtures("columns_without_spark")
@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (OF_A_BARE_PYTHON, "ModuleNotFoundError: No module named 'pyarrow'"),
        (
            OF_ANOTHER_VERSION,
            "PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version:"
            " 3.12 than that in driver: 3.11, PySpark cannot run with different minor versions.",
        ),
        (OF_NO_PYTHON, 'Cannot run program "/no/python"'),
        ("\nno such session", "no such session"),
    ],
)
def test_connect_server_whose_python_runs_no_function_is_refused_with_its_reason(
    told: str, reason: str
) -> None:
    """A Python of another version got no reason, and one that is missing the whole trace."""
    server: Any = Server(told)
    with pytest.raises(NoBarnabas) as refusal:
        require_barnabas(server)
    assert str(refusal.value) == (
        f"the Spark Connect server runs no Python function ({reason}): run pip install "
        "'barnabas[spark]' there, or set PYSPARK_PYTHON where the server starts"
    )
