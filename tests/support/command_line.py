"""Commands run in this process or in a child, and `barnabas serve` as a child process."""

import io
import json
import logging
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from barnabas.cli.main import main

ROOT = Path(__file__).parents[2]
DEADLINE = 20.0


def niceness(pid: int) -> int:
    """Return the niceness of a process; 0 is the calling one."""
    return os.getpriority(os.PRIO_PROCESS, pid)


def environment(**more: str) -> dict[str, str]:
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("KAFKA_", "BARNABAS_", "CLUSTER_"))
    }
    return {**kept, "PYTHONPATH": str(ROOT), **more}


def run(
    *arguments: str, servers: str = "", stdin: bytes = b"", **more: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "barnabas", *arguments],
        input=stdin,
        capture_output=True,
        timeout=DEADLINE,
        env=environment(BARNABAS_BOOTSTRAP_SERVER=servers or "127.0.0.1:1", **more),
        check=False,
    )


def run_here(
    *arguments: str, servers: str = "", stdin: bytes = b"", **more: str
) -> subprocess.CompletedProcess[bytes]:
    """Do the same in this process, which saves the start of a Python.

    It has to be the main thread, outside of an event loop.
    """
    out, errors = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    handlers = list(logging.getLogger().handlers)
    with ExitStack() as stack:
        stack.enter_context(patch.object(sys, "argv", ["barnabas", *arguments]))
        # The command asks for the descriptor of its input.
        file = stack.enter_context(tempfile.TemporaryFile())
        file.write(stdin)
        file.seek(0)
        stack.enter_context(patch.object(sys, "stdin", io.TextIOWrapper(file)))
        where = environment(BARNABAS_BOOTSTRAP_SERVER=servers or "127.0.0.1:1", **more)
        stack.enter_context(patch.dict(os.environ, where, clear=True))
        stack.enter_context(redirect_stdout(out))
        stack.enter_context(redirect_stderr(errors))
        done = stack.enter_context(pytest.raises(SystemExit))
        main()
    assert logging.getLogger().handlers == handlers, "run this command in a child process"
    texts = (each.buffer.getvalue() for each in (out, errors))  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(arguments, int(done.value.code or 0), *texts)


def on_a_terminal(
    servers: str,
    *arguments: str,
    columns: int = 80,
    code: int = 0,
    errors: bool = False,
    interrupt_at: str = "",
) -> str:
    """Run a command whose output is a terminal; return what is on the screen.

    With `errors` the terminal, which is not dumb then, is its standard error alone. The command is
    interrupted once the screen has the expression `interrupt_at`.
    """
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "barnabas", *arguments],
        stdout=subprocess.DEVNULL if errors else theirs,
        stderr=theirs if errors else None,
        env=environment(
            BARNABAS_BOOTSTRAP_SERVER=servers,
            COLUMNS=str(columns),
            TERM="xterm" if errors else "dumb",
        ),
    )
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(ours, 65_536):
            shown += data
            if interrupt_at and re.search(interrupt_at.encode(), shown):
                process.send_signal(signal.SIGINT)
                interrupt_at = ""
    except OSError:
        # Linux reports EIO on a terminal whose other end is closed.
        pass
    finally:
        os.close(ours)
    assert process.wait(DEADLINE) == code
    return shown.decode()


def serve_on_a_terminal(*arguments: str, **more: str) -> tuple[str, str]:
    """Run `barnabas serve` on a terminal; return what is on the screen at the end of its banner,
    and what a SIGTERM then adds."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "barnabas", "serve", *arguments],
        stdout=theirs,
        stderr=theirs,
        env=environment(TERM="dumb", NO_COLOR="1", **more),
    )
    os.close(theirs)
    shown, last = b"", b"Ctrl-C\r\n"
    told = False
    try:
        while data := os.read(ours, 65_536):
            shown += data
            if last in shown and not told:
                told = True
                process.terminate()
    except OSError:
        # Linux reports EIO on a terminal whose other end is closed.
        pass
    finally:
        os.close(ours)
    assert process.wait(DEADLINE) == 0, shown.decode()
    banner, _, rest = shown.partition(last)
    return (banner + last).decode(), rest.decode()


def run_in_shell(commands: str, servers: str, directory: Path, **more: str) -> str:
    """Run commands of a page with this Python's `barnabas`, and return their output; all must
    succeed."""
    path = f"{Path(sys.executable).parent}:{environment()['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        capture_output=True,
        text=True,
        cwd=directory,
        env=environment(PATH=path, BARNABAS_BOOTSTRAP_SERVER=servers, **more),
        timeout=3 * DEADLINE,
        check=False,
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"
    return done.stdout


class Cli:
    """Commands on one cluster, in this process. A call expects success and no standard error."""

    def __init__(self, servers: str, pytest_tools: tuple[Any, Any], directory: Path) -> None:
        self.servers = servers
        self._patch, self._captured = pytest_tools
        self._input = directory / "stdin"

    def at(self, servers: str) -> "Cli":
        """Return the same for another cluster."""
        return Cli(servers, (self._patch, self._captured), self._input.parent)

    def run(self, *arguments: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
        """Run a command, and return exit code, standard output and standard error."""
        self._input.write_bytes(stdin)
        self._captured.readouterr()
        handlers = list(logging.getLogger().handlers)
        with self._input.open() as input_file, self._patch.context() as patch:
            patch.setattr(sys, "argv", ["barnabas", *arguments])
            patch.setattr(sys, "stdin", input_file)
            patch.setenv("BARNABAS_BOOTSTRAP_SERVER", self.servers)
            with pytest.raises(SystemExit) as done:
                main()
        # A handler on the captured standard error would fail in every later test.
        assert logging.getLogger().handlers == handlers, "run this command in a child process"
        return (int(done.value.code or 0), *self._captured.readouterr())

    def __call__(self, *arguments: str, stdin: bytes = b"") -> bytes:
        code, out, errors = self.run(*arguments, stdin=stdin)
        assert (code, errors) == (0, b""), f"exit {code}: {errors.decode()}"
        return out

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))


class Served:
    """`barnabas serve` as a child process."""

    def __init__(
        self,
        *arguments: str,
        under: Sequence[str] = (),
        command: Sequence[str] = (sys.executable, "-m", "barnabas"),
        cwd: Path | None = None,
        **more: str,
    ) -> None:
        """`under` is a command that starts `command`, which is `barnabas` as it is installed."""
        self.process = subprocess.Popen(
            [*under, *command, "serve", *arguments],
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=environment(**more),
        )
        assert self.process.stdout is not None
        first = self.process.stdout.readline().decode()
        found = re.match(r"Barnabas serves (\S+);", first)
        assert found is not None, self.process.communicate()[1].decode()
        self.servers = found[1]

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        self.process.send_signal(number)
        out, errors = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, out.decode(), errors.decode()
