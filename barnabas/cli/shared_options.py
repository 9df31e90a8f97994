"""The options that commands share; the help of `barnabas` explains them once.

The module is light: `barnabas --help` imports it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TextIO, TypeVar

import click

DEFAULT_SERVER: Final = "localhost:9092"
Command = TypeVar("Command", bound=Callable[..., Any])


class ClusterOption(click.Option):
    """An option of every command that asks a cluster."""


@contextmanager
def refused(file: str = "--command-config") -> Iterator[None]:
    """Refuse a wrong value in a client's file."""
    from barnabas.config.key import ConfigError

    try:
        yield
    except ConfigError as error:
        raise click.ClickException(f"{file}: {error}") from error


def command_config_option(
    read: Callable[[Mapping[str, str]], Mapping[str, str]],
) -> Callable[[Command], Command]:
    """Return the option with the keys of a client, passed to the command as `properties`, as a
    function makes them of those in the file."""

    def keys_of(
        _context: click.Context, _option: click.Parameter, file: TextIO | None
    ) -> Mapping[str, str]:
        if file is None:
            return {}
        from barnabas.config.properties import parse_properties

        with refused():
            return read(parse_properties(file.read()))

    return click.option(
        "--command-config",
        "properties",
        cls=ClusterOption,
        type=click.File(encoding="utf-8"),
        callback=keys_of,
        envvar="BARNABAS_COMMAND_CONFIG",
        show_envvar=True,
        help="File with the keys of a client, as Kafka or librdkafka name them: bootstrap.servers, "
        "security, client.id and timeouts.",
    )


def _keys_of_a_client(keys: Mapping[str, str]) -> Mapping[str, str]:
    from barnabas.cli.client_file import client_file, replaced

    return client_file(replaced(keys))


command_config = command_config_option(_keys_of_a_client)
timeout_option = click.option(
    "--timeout",
    cls=ClusterOption,
    type=float,
    show_default="default.api.timeout.ms of the client, or 30.0",
    help="Timeout of an operation in seconds.",
)
"""The option that `seconds_of` takes."""
_bootstrap_server = click.option(
    "-b",
    "--bootstrap-server",
    cls=ClusterOption,
    show_default=f"the profile in use, or {DEFAULT_SERVER}",
    envvar="BARNABAS_BOOTSTRAP_SERVER",
    show_envvar=True,
    help="HOST:PORT of one or more brokers, separated by commas.",
)
_json = click.option(
    "-J", "--json", "as_json", cls=ClusterOption, is_flag=True, help="Print JSON, for programs."
)


def add_cluster_options(command: Command) -> Command:
    """Add the options of a cluster to the function of a command."""
    return _bootstrap_server(command_config(timeout_option(_json(command))))


@click.command()
@add_cluster_options
def _asks_a_cluster(**_options: Any) -> None:
    """Hold the options of a cluster."""


CLUSTER_OPTIONS: Final = tuple(_asks_a_cluster.params)


def split(
    params: Iterable[click.Parameter],
) -> tuple[list[click.Parameter], list[click.Parameter]]:
    """Return the own parameters of a command, and its options of a cluster.

    A command that lacks one of these options has none of them: its help explains those it has.
    """
    every = list(params)
    shared: list[click.Parameter] = [each for each in every if isinstance(each, ClusterOption)]
    if len(shared) < len(CLUSTER_OPTIONS):
        return every, []
    return [each for each in every if each not in shared], shared
