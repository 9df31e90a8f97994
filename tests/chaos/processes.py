"""One broker and its directory, over as many processes as it takes."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
STOP_WITHIN_S = 40.0


class BrokerProcess:
    """`prefix` stands in front of its command line, `program` is another than `barnabas serve`."""

    def __init__(
        self,
        directory: Path,
        keys: Mapping[str, str],
        *,
        prefix: Sequence[str] = (),
        program: str | None = None,
        environment: Mapping[str, str] = {},
    ) -> None:
        self.directory = directory
        self.starts = 0
        self._keys = dict(keys)
        self._prefix = list(prefix)
        self._program = program
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def logs(self) -> Path:
        """Where its partitions are."""
        return self.directory / ("cache" if self._program else "")

    @property
    def output(self) -> Path:
        return self.directory.with_suffix(".out")

    def start(self, **more: str) -> None:
        """A process; `more` are keys that it alone has. Returns at once."""
        keys = self._keys | {key.replace("_", "."): value for key, value in more.items()}
        pairs = [f"{key}={value}" for key, value in keys.items()]
        if self._program is None:
            words = ["barnabas", "serve", "--set", f"log.dirs={self.directory}"]
            words += [word for pair in pairs for word in ("--set", pair)]
        else:
            words = [self._program, str(self.directory), *pairs]
        self.starts += 1
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                [*self._prefix, sys.executable, "-m", *words],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), **self._environment},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def kill(self) -> int:
        """kill -9, and how it ended."""
        self.signal(signal.SIGKILL)
        return self.ended()

    def terminate(self) -> int:
        """SIGTERM, and the end of it."""
        self.signal(signal.SIGTERM)
        return self.ended()

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def ended(self, within_s: float = STOP_WITHIN_S) -> int:
        """Its exit code, once it has ended: negative if a signal ended it."""
        assert self._process is not None
        return self._process.wait(within_s)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def pause(self) -> None:
        """SIGSTOP; returns when every thread of it stands still."""
        self.signal(signal.SIGSTOP)
        give_up = time.monotonic() + STOP_WITHIN_S
        while not all(state == "T" for state in self._states()):
            assert time.monotonic() < give_up
            time.sleep(0.001)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def _states(self) -> list[str]:
        states = []
        for thread in Path(f"/proc/{self.pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError):
                states.append((thread / "stat").read_text().rpartition(")")[2].split()[0])
        return states
