"""Broker settings from a file, the environment and options, with the defaults of the command line.

Every command that reads one broker's data must find the same settings.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

OF_THE_COMMAND = "defaults of barnabas serve"
DEFAULT_LISTENER = "localhost:9092"
LOG_FORMS = ("console", "json")
LOG_LEVELS = ("fatal", "error", "warn", "info", "debug", "trace")


class LogOptions(NamedTuple):
    """The options of a broker's log, for `configure` in `broker.observability.logging`."""

    level: str
    form: str | None = None
    until_served: str | None = None
    """The level until the broker serves and has said so; None for `level`."""


def default_data_directory() -> Path:
    """Return the default log directory, under the user's state directory (XDG)."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "barnabas"


def read_properties(file: Path | None, options: Mapping[str, str]) -> dict[str, str]:
    """Merge the keys of `property_sources`; the later sources win.

    The result always has a listener and a log directory.
    """
    return merged(property_sources(file, options))


def property_sources(
    file: Path | None,
    options: Mapping[str, str],
    environment: Mapping[str, str] | None = None,
) -> dict[str, Mapping[str, str]]:
    """Return the keys of `file`, of KAFKA_... variables and of `options`, by the name of their
    source, with what references to config providers stand for. The first source has what the
    command line sets if no other one does. The environment is that of this process, unless it is
    given. Raises ConfigError."""
    from barnabas.config.properties import from_environment, parse_properties

    sources: dict[str, Mapping[str, str]] = {OF_THE_COMMAND: {}}
    if file is not None:
        # java.util.Properties reads Latin-1; other characters are escaped in the file.
        sources[str(file)] = parse_properties(file.read_text("iso-8859-1"))
    variables = from_environment(os.environ if environment is None else environment)
    sources |= {"KAFKA_... variables": variables, "options": options}
    if "config.providers" in (given := merged(sources)):
        # Imported here: a broker without providers starts faster.
        from barnabas.security.config_providers import providers_of, replace_with

        providers = providers_of(given)
        sources = {name: replace_with(providers, keys) for name, keys in sources.items()}
    ours = {"listeners": _default_listeners(variables, merged(sources))}
    if not merged(sources).keys() & {"log.dir", "log.dirs"}:
        ours["log.dirs"] = str(default_data_directory())
    return sources | {OF_THE_COMMAND: ours}


def _default_listeners(variables: Mapping[str, str], properties: Mapping[str, str]) -> str:
    """Return the listeners of a broker for which none are set: on all interfaces, if clients of
    other hosts are told an address.

    Like Kafka's images, take the ports of KAFKA_ADVERTISED_LISTENERS; otherwise Kafka's default.
    """
    from barnabas.config.listeners import listening_everywhere

    if "advertised.listeners" not in properties:
        return f"PLAINTEXT://{DEFAULT_LISTENER}"
    told = variables.get("advertised.listeners", "PLAINTEXT://:9092")
    return ",".join(map(listening_everywhere, told.split(",")))


def merged(sources: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the keys of all sources; the later ones win."""
    return {name: text for keys in sources.values() for name, text in keys.items()}


def address_file_option(command: Command) -> Command:
    """Add --address-file to a command that runs brokers."""
    return click.option(
        "--address-file",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Write the address for clients here when the brokers serve; remove it at the stop.",
    )(command)


def console_option(command: Command) -> Command:
    """Add --console to a command that runs brokers."""
    return click.option(
        "--console",
        is_flag=False,
        flag_value="127.0.0.1:8080",
        metavar="[HOST:PORT]",
        help="Serve the console here too [127.0.0.1:8080], in a process that ends with this one.",
    )(command)


def faults_option(command: Command) -> Command:
    """Add --faults to a command that runs brokers."""
    return click.option(
        "--faults",
        metavar="HOST:PORT",
        help="For tests: serve levers here that hold, delay and refuse requests, cut links, and "
        "pause and kill brokers. Prints the token that they need.",
    )(command)
