"""`barnabas pipeline example` where it cannot start: one line, and nothing is left behind."""

import importlib.util
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.pipeline.example.job import DATA, JOB_FILE, job_text
from tests.support.command_line import run


@contextmanager
def taken_port() -> Iterator[int]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def refused(done: "subprocess.CompletedProcess[bytes]") -> str:
    """Return the one line on standard error."""
    assert done.returncode == 1
    (line,) = done.stderr.decode().splitlines()
    return line


def example(directory: Path, *options: str, **environment: str) -> str:
    return refused(
        run("pipeline", "example", "-d", str(directory / "example"), *options, **environment)
    )


def test_port_of_a_broker_is_taken(tmp_path):
    with taken_port() as port:
        line = example(tmp_path, "--listen", f"127.0.0.1:{port}", "--http", "127.0.0.1:0")
    advice = "--listen 127.0.0.1:0 takes free ports"
    assert line == f"barnabas: 127.0.0.1:{port}: Address already in use; {advice}"


def test_port_of_the_page_is_taken(tmp_path):
    with taken_port() as port:
        line = example(tmp_path, "--listen", "127.0.0.1:0", "--http", f"127.0.0.1:{port}")
    advice = "--http 127.0.0.1:0 takes a free port"
    assert line == f"barnabas: --http 127.0.0.1:{port}: Address already in use; {advice}"


def test_java_is_missing(tmp_path):
    line = example(tmp_path, PATH=str(tmp_path), JAVA_HOME="")
    assert line == "barnabas: Spark needs Java: install Java 17 or newer, or set JAVA_HOME"
    assert not (tmp_path / "example").exists()


def test_extra_is_missing(tmp_path):
    # A module that cannot be found hides the installed one.
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\n"
        "found = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'pyspark' else found(name, *more)\n"
    )
    path = os.pathsep.join((str(tmp_path), *_path()))
    line = example(tmp_path, PYTHONPATH=path)
    assert line == "barnabas: the pipeline needs pyspark: pip install 'barnabas[spark]'"


def _path() -> list[str]:
    spec = importlib.util.find_spec("barnabas")
    assert spec is not None
    assert spec.origin is not None
    return [str(Path(spec.origin).parents[1])]


def test_folder_with_other_files_is_left_alone(tmp_path):
    other = tmp_path / "example" / DATA / "mine"
    other.mkdir(parents=True)
    line = example(tmp_path)
    folder = tmp_path / "example"
    assert line == f"barnabas: {folder} has other files: choose a new folder with --directory"
    assert other.exists()


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("topic: orders", "topic: others", "the job must read topic orders"),
        ("  key: category", "  keys: category", "'keys'"),
    ],
)
def test_changed_job_file_is_checked_and_kept(tmp_path, right, wrong, told):
    path = tmp_path / "example" / JOB_FILE
    path.parent.mkdir()
    text = job_text().replace(right, wrong, 1)
    path.write_text(text)
    line = example(tmp_path)
    assert line.startswith(f"barnabas: {path}:")
    assert told in line
    assert path.read_text() == text
    assert not (path.parent / DATA).exists()
    shutil.rmtree(path.parent)
