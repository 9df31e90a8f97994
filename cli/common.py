"""The options, output formats and progress bar that the commands share."""

import asyncio
import dataclasses
import functools
import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.config.properties import parse_properties

if TYPE_CHECKING:
    from barnabas.client.connection import Connect

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """The cluster that a command works on, and the format of the command's output."""

    bootstrap: str
    timeout: float
    as_json: bool = False
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    """The keys of --command-config."""

    def run(self, work: Callable[[Cluster], Awaitable[T]]) -> T:
        """Run `work` with a connected cluster."""

        async def connected(connect: "Connect | None") -> T:
            async with Cluster(self.bootstrap, timeout=self.timeout, connect=connect) as cluster:
                return await work(cluster)

        return asyncio.run(connected(self.connect()))

    def connect(self) -> "Connect | None":
        """Return the function that opens connections with the keys of --command-config."""
        if not self.properties:
            return None
        from barnabas.client.security import connect_with
        from barnabas.config.key import ConfigError

        try:
            return connect_with(self.properties)
        except ConfigError as error:
            raise click.ClickException(f"--command-config: {error}") from error

    def administer(self, work: Callable[[Admin], Awaitable[T]]) -> T:
        """Run `work` with an Admin of the connected cluster."""
        return self.run(lambda cluster: work(Admin(cluster)))

    def show(
        self, columns: Sequence[str], rows: Iterable[Mapping[str, Any]], *, title: str = ""
    ) -> None:
        """Print rows as JSON, as a table on a terminal, or as tab-separated lines."""
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
        """Report a change that was made: `text` for people, `facts` as the JSON answer."""
        click.echo(json.dumps(facts) if self.as_json else text)


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error; yield the function that takes the amount done.

    No bar is shown if standard error is no terminal, or if `total` is None (unknown).
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
    """Add the options of a cluster, --timeout and --json, passed to the command as `target`."""

    @click.option(
        "-b",
        "--bootstrap-server",
        default="localhost:9092",
        show_default=True,
        envvar="BARNABAS_BOOTSTRAP_SERVER",
        help="HOST:PORT of one or more brokers, separated by commas.",
    )
    @click.option(
        "--command-config",
        type=click.File(encoding="utf-8"),
        envvar="BARNABAS_COMMAND_CONFIG",
        help="File with security keys of a client, by the names of Kafka or librdkafka.",
    )
    @click.option(
        "--timeout", default=30.0, show_default=True, help="Timeout of an operation in seconds."
    )
    @click.option("-J", "--json", "as_json", is_flag=True, help="Print JSON, for programs.")
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        bootstrap_server: str,
        command_config: TextIO | None,
        timeout: float,
        as_json: bool,
        **kwargs: Any,
    ) -> Any:
        properties = {} if command_config is None else parse_properties(command_config.read())
        target = Target(bootstrap_server, timeout, as_json, properties)
        return command(*args, target=target, **kwargs)

    return wrapped  # type: ignore[return-value]
