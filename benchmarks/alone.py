"""Barnabas measured alone: `python -m benchmarks.alone RUN`.

    limits          what one broker carries, and its effect on other clients
    recovery        start after kill -9
    compaction      a topic of one partition in which each key was written ten times
    churn           `verify eos --churn` on three brokers: memory, descriptors, files
    members         a large group, in the consumer and in the classic protocol
    console         a console of a large cluster, and its effect on other clients
    units           the cost of partitions, connections and transactional ids
    hold            the longest time for which one request holds the event loop
    login_times     failed logins of users that exist and of users that do not
    first_broker    CPU seconds of a test's first broker, from the wheel

A run prints its figures; RUN --help has its sizes. With --write it keeps them, and writes them to
docs/LIMITS.md: the first tables of that page are those of `limits`. The exit code is 1 if a run has
shown a fault.
"""

import json
import os
import platform
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from benchmarks import (
    first_broker,
    hold,
    large_console,
    limits,
    login_times,
    long_runs,
    report,
    units,
)
from benchmarks.limits import Felt, Found
from benchmarks.measures import HERE, SIZES, Faulty, shown

PAGE: Final = HERE.parent / "docs" / "LIMITS.md"
NOTES: Final = HERE / "limits_notes.md"
KEPT: Final = HERE / "alone.json"
"""The figures of the page: by run, with its machine and its command."""
RUNS: Final[Mapping[str, Callable[[Namespace, Path], Iterator[Found]]]] = {
    "limits": limits.measure,
    "recovery": long_runs.recovery,
    "compaction": long_runs.compaction,
    "churn": long_runs.churn,
    "members": long_runs.members,
    "console": large_console.console,
    "units": units.measure,
    "hold": hold.measure,
    "login_times": login_times.measure,
    "first_broker": first_broker.measure,
}


def command(options: Namespace) -> str:
    """Return the command of a run, with its sizes."""
    sizes = {name: vars(options)[name] for name in SIZES["alone"][options.run]}
    words = [
        f" {option(name)} {size if isinstance(size, str) else f'{size:g}'}"
        for name, size in sizes.items()
        if size != ""
    ]
    return f"python -m benchmarks.alone {options.run}{''.join(words)}"


def option(size: str) -> str:
    """Return the option of a size."""
    return f"--{size.replace('_', '-')}"


def keep(options: Namespace, found: Found) -> None:
    """Keep the figures of a run, and write the page of all runs."""
    kept = json.loads(KEPT.read_text())
    title, _, _ = (RUNS[options.run].__doc__ or "").partition("\n\n")
    felt = {name: each for name, each in found.items() if isinstance(each, Felt)}
    kept[options.run] = {
        "title": " ".join(title.split()).removesuffix("."),
        "command": command(options),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": f"{os.cpu_count()} cores, {platform.platform()}, "
        f"Python {platform.python_version()}",
        "figures": {
            name: shown(each) for name, each in found.items() if not isinstance(each, Felt)
        },
    }
    if felt:
        kept[options.run] |= {
            "rounds": options.rounds,
            "window_s": options.window_s,
            "felt": {name: each.p99s for name, each in felt.items()},
            "held": {name: each.held for name, each in felt.items()},
        }
    KEPT.write_text(json.dumps(kept, indent=1) + "\n")
    PAGE.write_text(report.limits_page(kept, NOTES))


def parsed() -> Namespace:
    """Return the options of the command line, with all sizes of the run."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    runs = parser.add_subparsers(dest="run", required=True, metavar="RUN")
    for name, run in RUNS.items():
        one = runs.add_parser(name, description=run.__doc__)
        for size, default in SIZES["alone"][name].items():
            what = f"default: {default!r}"
            one.add_argument(option(size), type=type(default), default=default, help=what)
        one.add_argument("--directory", help="of the data, on a disk with three times the room")
        one.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.write and vars(options).get("only"):
        parser.error("--only does not go with --write")
    return options


def main() -> int:
    options = parsed()
    figures: Found = {}
    with tempfile.TemporaryDirectory(prefix="alone-", dir=options.directory) as directory:
        try:
            for some in RUNS[options.run](options, Path(directory)):
                figures |= some
                for name, value in some.items():
                    text = str(value) if isinstance(value, Felt) else shown(value)
                    print(f"{name:70}{text:>12}", flush=True)
        except Faulty as fault:
            print(f"fault: {fault}")
            return 1
    if options.write:
        keep(options, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
