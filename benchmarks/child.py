"""Functions of this folder in processes of their own, which speak with ours in lines of JSON.

    python benchmarks/child.py MODULE FUNCTION

The first line has the arguments of the function; what it returns is its last line.
"""

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Timer
from typing import Any, Self

HERE = Path(__file__).parent
WITHIN_S = 600.0
"""The longest time until a process says something."""


class Child:
    """A context manager: a function runs in another process until it has ended, or the block."""

    def __init__(
        self,
        load: str,
        /,
        *,
        root: Path = HERE.parent,
        python: Path = Path(sys.executable),
        cwd: Path = HERE.parent,
        environment: Mapping[str, str] = {},
        **arguments: object,
    ) -> None:
        """`load` is a module of this folder and a function, with a dot between them; `root` the
        checkout whose `barnabas` it imports."""
        self._load = load
        # -P: the modules of this folder hide no library.
        self._process = subprocess.Popen(
            [str(python), "-P", __file__, *load.split(".")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(root), **environment},
            text=True,
        )
        self.tell(arguments)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, said: object = None) -> None:
        """Send a line to the function."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(said) + "\n")
        self._process.stdin.flush()

    def hear(self, within_s: float = WITHIN_S) -> Any:
        """Return what the function says next. Raises RuntimeError if it ends, or takes too long."""
        assert self._process.stdout is not None
        overdue = Timer(within_s, self._process.kill)
        overdue.start()
        line = self._process.stdout.readline()
        overdue.cancel()
        if not line:
            raise RuntimeError(f"{self._load} ended, or said nothing for {within_s:g} s")
        return json.loads(line)

    def check(self) -> None:
        """Raise RuntimeError if the function has ended: nothing was measured then."""
        if self._process.poll() is not None:
            raise RuntimeError(f"{self._load} ended by itself")


def driven(load: str, /, **options: Any) -> Any:
    """Run a function in a process of its own, with the options of `Child`; return its result."""
    with Child(load, **options) as child:
        return child.hear()


@contextmanager
def ready(load: str, several: Iterable[Mapping[str, object]]) -> Iterator[Callable[[], None]]:
    """Run a function in several processes, once with each of these arguments, which says that it is
    ready, and waits; yield the function that lets all go on, and returns when they have ended."""
    with ExitStack() as stack:
        children = [stack.enter_context(Child(load, **each)) for each in several]
        for child in children:
            child.hear()

        def go_on() -> None:
            for child in children:
                child.tell()
            for child in children:
                child.hear()

        yield go_on


def tell(said: object) -> None:
    """Send a line to the process that has started this one."""
    print(json.dumps(said), flush=True)


def told() -> Any:
    """Return the next line from the process that has started this one."""
    return json.loads(sys.stdin.readline())


if __name__ == "__main__":
    module, name = sys.argv[1:]
    tell(runpy.run_path(str(HERE / f"{module}.py"))[name](**told()))
