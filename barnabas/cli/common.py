"""The options, output formats and progress bar that the commands share."""

import asyncio
import dataclasses
import functools
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar

import click
from click.core import ParameterSource

from barnabas.cli.client_file import SERVERS, client_file, replaced, require_protocol
from barnabas.cli.shared_options import DEFAULT_SERVER, add_cluster_options, refused
from barnabas.cli.tables import cell, for_people, lines_of, print_rows, tell
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.connection import BrokerUnreachable
from barnabas.config.client_keys import ClientKeys
from barnabas.config.properties import parse_properties
from barnabas.operations.answers.model import Answer, fields_of, names_of

if TYPE_CHECKING:
    from barnabas.client.connection import Connect

UNHEALTHY: Final = 3
"""The exit code of a check that has found a problem."""
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
            cluster = self.cluster(connect)
            try:
                async with cluster:
                    return await work(cluster)
            except BrokerUnreachable:
                if not cluster.nodes and connect is None:
                    from barnabas.cli.peers import refuse_wrong_peers

                    await refuse_wrong_peers(self.bootstrap)
                raise

        return asyncio.run(connected(self.connect()))

    def connect(self) -> "Connect | None":
        """Return the function that opens connections with the keys of --command-config."""
        if not self.properties:
            return None
        from barnabas.client.security import connect_with

        with refused():
            return connect_with(self.properties)

    def cluster(self, connect: "Connect | None") -> Cluster:
        """Return the cluster, not connected yet, with the keys of --command-config."""
        keys = client_keys(self.properties)
        request_ms = keys.request_timeout_ms
        return Cluster(
            self.bootstrap,
            client_id=keys.client_id,
            timeout=self.timeout,
            request_timeout=None if request_ms is None else request_ms / 1000,
            connect=connect,
            check_cluster=keys.metadata_cluster_check_enable,
        )

    def administer(self, work: Callable[[Admin], Awaitable[T]]) -> T:
        """Run `work` with an Admin of the connected cluster."""
        return self.run(lambda cluster: work(Admin(cluster)))

    def show(
        self,
        columns: type[Answer] | Sequence[str],
        rows: Iterable[Answer | Mapping[str, Any]],
        *,
        title: str = "",
        table: bool = False,
    ) -> None:
        """Print rows as JSON, as a table or cards on a terminal, or as tab-separated lines.

        The columns of an answer are its fields. With `table` a row alone is a table too.
        """
        if self.as_json:
            self.answer(list(rows))
            return
        names = names_of(columns) if isinstance(columns, type) else columns
        names, shown = for_people(names, [_fields(row) for row in rows])
        if sys.stdout.isatty():
            print_rows(names, shown, title, table=table)
        else:
            click.echo("\t".join(names))
            for row in shown:
                # `color` is for names with control characters, which Click would remove.
                click.echo("\t".join(cell(row.get(name)) for name in names), color=True)

    def show_one(self, row: Answer | Mapping[str, Any], *, title: str = "") -> None:
        """Print one thing: a JSON object, or a line for each field, or for each item of a list."""
        if self.as_json:
            self.answer(row)
            return
        fields = _fields(row)
        _, (row,) = for_people(fields, [fields])
        if sys.stdout.isatty():
            print_rows(list(row), [row], title)
        else:
            for name, text in lines_of(row):
                click.echo(f"{name}\t{text}", color=True)

    def done(self, text: str, answer: Answer) -> None:
        """Report a change that was made: `text` for people, or the answer as JSON."""
        if self.as_json:
            self.answer(answer, indent=None)
        else:
            tell(text)

    def answer(self, answer: Any, *, indent: int | None = 2) -> None:
        """Print the answer of the command that runs as JSON."""
        from barnabas.cli.json_answers import to_json

        command = click.get_current_context().command_path.partition(" ")[2]
        click.echo(to_json(command, answer, indent=indent))


def _fields(row: Answer | Mapping[str, Any]) -> Mapping[str, Any]:
    return fields_of(row) if isinstance(row, Answer) else row


@contextmanager
def progress(title: str, total: int | None, *, unit: str = "") -> Iterator[Callable[[int], None]]:
    """Show a progress bar with the rate on standard error; yield the function that takes the amount
    done.

    `unit` B is bytes. No bar is shown if standard error is no terminal, or if `total` is None
    (unknown).
    """
    if total is None or not sys.stderr.isatty():
        yield lambda done: None  # noqa: ARG005
        return
    from rich.console import Console
    from rich.filesize import decimal
    from rich.progress import Progress, ProgressColumn, Task
    from rich.text import Text

    class Rate(ProgressColumn):
        """The amount in a second."""

        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            if speed is None:
                return Text("")
            return Text(f"{decimal(int(speed)) if unit == 'B' else f'{speed:,.0f}'}/s")

    columns = (*Progress.get_default_columns(), Rate())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.update(task, completed=done)


def client_keys(properties: Mapping[str, str]) -> ClientKeys:
    """Return the keys of --command-config that are not about security; others are ignored."""
    with refused():
        return ClientKeys.of(properties)


def seconds_of(timeout: float | None, properties: Mapping[str, str]) -> float:
    """Return the timeout of an operation: that of --timeout, else that of --command-config."""
    if timeout is not None:
        return timeout
    return client_keys(properties).default_api_timeout_ms / 1000


def _profile() -> Mapping[str, str]:
    """Return the keys of the profile in use."""
    from barnabas.cli import profiles

    name = profiles.in_use()
    if name is None:
        return {}
    with refused(f"profile {name}"):
        return client_file(replaced(profiles.read(name)))


def target_of(
    server: str | None, properties: Mapping[str, str], timeout: float | None, *, as_json: bool
) -> Target:
    """Return the target of the options of `cluster_options`; without a server that of the profile
    in use, or the default."""
    if server is None:
        # Passwords of a profile are for its own servers.
        properties = properties or _profile()
        server = properties.get(SERVERS, DEFAULT_SERVER)
    if "://" in server:
        with refused("--bootstrap-server"):
            require_protocol(server, properties)
    return Target(server, seconds_of(timeout, properties), as_json, properties)


def _tell_ignored_address(server: str | None, properties: Mapping[str, str]) -> None:
    """Say which address is asked, if another one was given that the command line does not have."""
    from barnabas.cli import profiles

    source = click.get_current_context().get_parameter_source("bootstrap_server")
    in_file = properties.get(SERVERS)
    if source is ParameterSource.ENVIRONMENT and in_file not in (None, server):
        ignored = f"{SERVERS}={in_file} of --command-config"
    elif server is None and properties and in_file is None and (name := profiles.in_use()):
        server, ignored = DEFAULT_SERVER, f"the profile {name}, because of --command-config"
    else:
        return
    tell(f"asking {server}, and not {ignored}", err=True)


def cluster_options(command: Command) -> Command:
    """Add the options of a cluster, --timeout and --json, passed to the command as `target`."""

    @add_cluster_options
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        bootstrap_server: str | None,
        properties: Mapping[str, str],
        timeout: float | None,
        as_json: bool,
        **kwargs: Any,
    ) -> Any:
        _tell_ignored_address(bootstrap_server, properties)
        target = target_of(bootstrap_server, properties, timeout, as_json=as_json)
        return command(*args, target=target, **kwargs)

    return wrapped  # type: ignore[return-value]


def http_options(command: Command) -> Command:
    """Add the options of the brokers' HTTP endpoints, passed to the command as `access`."""

    @click.option(
        "--token-file",
        type=click.File(),
        help="The token of brokers with metrics.listener.token.file.",
    )
    @click.option("--ca-file", type=click.Path(exists=True), help="PEM file for https endpoints.")
    @functools.wraps(command)
    def wrapped(*args: Any, token_file: TextIO | None, ca_file: str | None, **kwargs: Any) -> Any:
        from barnabas.operations.broker_http import HttpAccess

        token = None if token_file is None else token_file.read().strip()
        try:
            access = HttpAccess(token, ca_file)
        except OSError as error:
            raise click.ClickException(f"{ca_file} cannot be used: {error}") from error
        return command(*args, access=access, **kwargs)

    return wrapped  # type: ignore[return-value]


def store_options(command: Command) -> Command:
    """Add the options of a command group that works on the metadata instead of asking a broker.

    Its commands get a `StoredConfigs` by `click.pass_obj`, or None.
    """

    @click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Work on the data directory of a stopped broker instead of a cluster.",
    )
    @click.option(
        "--zookeeper",
        metavar="HOST:PORT",
        help="Work in ZooKeeper, as zookeeper.connect names it, instead of asking a broker.",
    )
    @click.option(
        "--zk-tls-config-file",
        "session",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Properties with the zookeeper.* keys of the session, such as zookeeper.ssl.*.",
    )
    @click.pass_context
    @functools.wraps(command)
    def wrapped(
        context: click.Context,
        /,
        *args: Any,
        data: Path | None,
        zookeeper: str | None,
        session: Path | None,
        **kwargs: Any,
    ) -> Any:
        if data is not None and zookeeper is not None:
            raise click.UsageError("--data and --zookeeper exclude each other")
        if session is not None and zookeeper is None:
            raise click.UsageError("--zk-tls-config-file needs --zookeeper")
        if data is not None or zookeeper is not None:
            # Imported here: the other commands need no broker code.
            from barnabas.cli.stored_configs import StoredConfigs

            with refused(str(session)):
                keys = {} if session is None else parse_properties(session.read_text())
                properties = dict(replaced(keys))
            if zookeeper is not None:
                properties["zookeeper.connect"] = zookeeper
            context.obj = StoredConfigs(data, properties)
        return command(*args, **kwargs)

    return wrapped  # type: ignore[return-value]
