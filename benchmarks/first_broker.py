"""CPU seconds of a test's first broker, from the wheel."""

import resource
import statistics
import subprocess
from argparse import Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from benchmarks.measures import Faulty, Figures
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
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [installation.python, *arguments],
        cwd=installation.folder,
        env=environment(PYTHONPATH="", **more),
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(after[:2]) - sum(before[:2])


def first_broker(installation: Installation, rounds: int, **more: str) -> tuple[float, float]:
    """Return the CPU seconds of the first broker in pytest, and outside."""
    took: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    # The first round writes bytecode, if it may, and fills the page cache.
    for _ in range(rounds + 1):
        for kind, arguments in _KINDS.items():
            took[kind].append(cpu_seconds(installation, arguments, **more))
    medians = {kind: statistics.median(each[1:]) for kind, each in took.items()}
    return medians["fixture"] - medians["pytest"], medians["start"] - medians["python"]


def measure(options: Namespace, directory: Path) -> Iterator[Figures]:
    """Hold the fixture's process against one without a broker and without the plugin, and
    `Broker().start()` against a bare interpreter; the fixture takes at most 1.3 times as much."""
    installation, worst = installed(directory), 0.0
    # In this order: the second kind leaves bytecode behind.
    for name, without in (("PYTHONDONTWRITEBYTECODE=1", "1"), ("with bytecode", "")):
        more = {"PYTHONDONTWRITEBYTECODE": without}
        inside, outside = first_broker(installation, options.rounds, **more)
        worst = max(worst, inside / outside)
        yield {
            f"{name}: s in pytest": inside,
            f"{name}: s outside": outside,
            f"{name}: in pytest over outside": inside / outside,
        }
    if worst > LIMIT:
        raise Faulty(f"the fixture takes {worst:.2f} times as much")
