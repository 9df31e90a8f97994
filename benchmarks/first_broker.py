"""CPU seconds of a test's first broker, from the wheel: `python -m benchmarks.first_broker`.

    --rounds N   runs of each kind, in turns; the median counts (5)

The fixture's process is held against one without a broker and without the plugin, and
`Broker().start()` against a bare interpreter. The exit code is 1 if the fixture takes more than
1.3 times as much, with bytecode or with PYTHONDONTWRITEBYTECODE.
"""

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.support.command_line import environment
from tests.support.installation import PROJECT, Installation, build, copy_sources

LIMIT: Final = 1.3
_PROGRAMS: Final = {
    "test_fixture.py": "def test(barnabas_broker): pass\n",
    "test_nothing.py": "def test(): pass\n",
    "start.py": "from barnabas.testing import Broker\nbroker = Broker().start()\nbroker.stop()\n",
    "nothing.py": "",
}
_PYTEST: Final = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
_KINDS: Final = {
    "fixture": (*_PYTEST, "test_fixture.py"),
    "pytest": (*_PYTEST, "-p", "no:barnabas", "test_nothing.py"),
    "start": ("start.py",),
    "python": ("nothing.py",),
}
"""The arguments of Python, for a process of each kind."""


def installed(folder: Path) -> Installation:
    """Install the wheel without bytecode, beside what it needs."""
    installation = Installation(folder, shared=False)
    installation.link(*PROJECT["dependencies"], "pytest")
    copy = folder / "sources"
    copy_sources(copy)
    installation.install(build("wheel", copy, folder / "dist"))
    for name, text in _PROGRAMS.items():
        (folder / name).write_text(text)
    return installation


def cpu_seconds(installation: Installation, arguments: Iterable[str], **more: str) -> float:
    """Run Python with arguments; return what it took."""
    process = subprocess.Popen(
        [str(installation.python), *arguments],
        cwd=installation.folder,
        env=environment(PYTHONPATH="", **more),
        stdout=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    return used.ru_utime + used.ru_stime


def measure(installation: Installation, rounds: int, **more: str) -> tuple[float, float]:
    """Return the CPU seconds of the first broker in pytest, and outside."""
    took: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    # The first round writes bytecode, if it may, and fills the page cache.
    for _ in range(rounds + 1):
        for kind, arguments in _KINDS.items():
            took[kind].append(cpu_seconds(installation, arguments, **more))
    medians = {kind: statistics.median(each[1:]) for kind, each in took.items()}
    return medians["fixture"] - medians["pytest"], medians["start"] - medians["python"]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    worst = 0.0
    with TemporaryDirectory() as folder:
        installation = installed(Path(folder))
        # In this order: the second kind leaves bytecode behind.
        for name, without in (("PYTHONDONTWRITEBYTECODE=1", "1"), ("with bytecode", "")):
            inside, outside = measure(installation, rounds, PYTHONDONTWRITEBYTECODE=without)
            worst = max(worst, inside / outside)
            print(
                f"{name}: {inside:.2f} s in pytest, {outside:.2f} s outside: "
                f"{inside / outside:.2f} times"
            )
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
