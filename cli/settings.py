"""Broker settings from a file, the environment and options, with the defaults of the command line.

Every command that reads one broker's data must find the same settings.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

if TYPE_CHECKING:
    from barnabas.cli.processes.secure import Secured

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_LISTENER = "localhost:9092"
LOG_FORMS = ("console", "json")
LOG_LEVELS = ("fatal", "error", "warn", "info", "debug", "trace")


class LogOptions(NamedTuple):
    """The options of a broker's log, for `configure` in broker/observability/logging.py."""

    level: str
    form: str | None = None


def default_data_directory() -> Path:
    """Return the default log directory, under the user's state directory (XDG)."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "barnabas"


def read_properties(file: Path | None, options: Mapping[str, str]) -> dict[str, str]:
    """Merge the keys of `file`, of KAFKA_... variables and of `options`; the later ones win.

    The result always has a listener and a log directory. Raises ConfigError if the environment
    cannot be read.
    """
    from barnabas.config.properties import from_environment, parse_properties

    # java.util.Properties reads Latin-1; other characters are escaped in the file.
    properties = {} if file is None else parse_properties(file.read_text("iso-8859-1"))
    properties |= from_environment(os.environ)
    properties |= options
    properties.setdefault("listeners", f"PLAINTEXT://{DEFAULT_LISTENER}")
    if not properties.keys() & {"log.dir", "log.dirs"}:
        properties["log.dirs"] = str(default_data_directory())
    return properties


def secured(
    properties: Mapping[str, str], secure: bool, directory: Path | None, *, several: bool
) -> "Secured | None":
    """Return what `secure_options` ask for; None without them. Raises ConfigError and
    ClickException."""
    if not secure and directory is None:
        return None
    # Imported here: a broker without it starts faster.
    from barnabas.cli.processes.secure import make_secure

    return make_secure(properties, directory, several=several)


def secure_options(command: Command) -> Command:
    """Add --secure and --secure-directory to a command that runs brokers."""
    command = click.option(
        "--secure-directory",
        type=click.Path(file_okay=False, path_type=Path),
        help="--secure, with its files in this directory [secure, in the log directory].",
    )(command)
    return click.option(
        "--secure",
        is_flag=True,
        help="Serve by TLS, to users with passwords, under access control rules.",
    )(command)
