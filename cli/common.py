"""What the commands share: where the cluster is, how answers are shown."""

import asyncio
import dataclasses
import functools
import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """The cluster a command works on and the form of its answer."""

    bootstrap: str
    timeout: float
    as_json: bool = False

    def run(self, work: Callable[[Cluster], Awaitable[T]]) -> T:
        """Runs `work` with a connected cluster."""

        async def connected() -> T:
            async with Cluster(self.bootstrap, timeout=self.timeout) as cluster:
                return await work(cluster)

        return asyncio.run(connected())

    def administer(self, work: Callable[[Admin], Awaitable[T]]) -> T:
        """Runs `work` with an Admin of the connected cluster."""
        return self.run(lambda cluster: work(Admin(cluster)))

    def show(
        self, columns: Sequence[str], rows: Iterable[Mapping[str, Any]], *, title: str = ""
    ) -> None:
        """Prints rows as JSON, as a table on a terminal, or as tab-separated lines."""
        rows = list(rows)
        if self.as_json:
            click.echo(json.dumps(rows, indent=2))
        elif sys.stdout.isatty():
            _show_table(columns, rows, title)
        else:
            click.echo("\t".join(columns))
            for row in rows:
                click.echo("\t".join(_text(row.get(column)) for column in columns))

    def done(self, text: str, **facts: Any) -> None:
        """Says that something was done."""
        click.echo(json.dumps(facts) if self.as_json else text)


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, told how much is done; nothing where no person looks.

    With `total` None there is nothing to compare with, and no bar.
    """
    if total is None or not sys.stderr.isatty():
        yield lambda done: None  # noqa: ARG005
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.update(task, completed=done)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value)


def _show_table(columns: Sequence[str], rows: list[Mapping[str, Any]], title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title or None, box=None, pad_edge=False, title_justify="left")
    for column in columns:
        numeric = all(isinstance(row.get(column), int | float | None) for row in rows)
        table.add_column(column, justify="right" if rows and numeric else "left")
    for row in rows:
        table.add_row(*(_text(row.get(column)) for column in columns))
    Console().print(table)


def cluster_options(command: Command) -> Command:
    """Adds --bootstrap-server, --timeout and --json, handed over as `target`."""

    @click.option(
        "-b",
        "--bootstrap-server",
        default="localhost:9092",
        show_default=True,
        envvar="BARNABAS_BOOTSTRAP_SERVER",
        help="HOST:PORT of one or more brokers, with commas.",
    )
    @click.option("--timeout", default=30.0, show_default=True, help="Seconds a request may take.")
    @click.option("-J", "--json", "as_json", is_flag=True, help="Answer in JSON, for programs.")
    @functools.wraps(command)
    def wrapped(
        *args: Any, bootstrap_server: str, timeout: float, as_json: bool, **kwargs: Any
    ) -> Any:
        return command(*args, target=Target(bootstrap_server, timeout, as_json), **kwargs)

    return wrapped  # type: ignore[return-value]
