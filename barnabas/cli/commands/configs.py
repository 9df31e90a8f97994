"""`barnabas configs`: the configurations of topics, brokers, loggers and groups."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, get_args

import click

from barnabas.cli import names
from barnabas.cli.arguments import parse_configs
from barnabas.cli.common import Target, cluster_options, store_options
from barnabas.cli.help import Choice, Group
from barnabas.cli.tables import tell
from barnabas.operations.answers.configs import (
    AlteredConfig,
    ConfigEntry,
    ConfigType,
    Kind,
    StoredEntry,
)
from barnabas.operations.answers.model import names_of
from barnabas.protocol.config_resources import (
    CONFIG_SOURCES,
    DEFAULT_SOURCE,
    ConfigOperation,
    ConfigResourceType,
)
from barnabas.protocol.messages.describe_configs import DescribeConfigsResourceResult

if TYPE_CHECKING:
    from barnabas.cli.stored_configs import StoredConfigs

_KINDS = {
    "topic": ConfigResourceType.TOPIC,
    "broker": ConfigResourceType.BROKER,
    "broker-logger": ConfigResourceType.BROKER_LOGGER,
    "group": ConfigResourceType.GROUP,
}
_TYPES: Final[dict[int, ConfigType]] = dict(enumerate(get_args(ConfigType), 1))
_kind = click.argument("kind", type=Choice(list(_KINDS)))
_name = click.argument("name", default="", shell_complete=names.configured)


@click.group(cls=Group)
@store_options
def configs() -> None:
    """Describe and change configurations of topics, brokers and groups.

    A broker that no client can reach is mended in its metadata: `configs --data DIR alter broker 0
    -d max.connections` for a stopped broker, `configs --zookeeper HOST:PORT alter ...` for brokers
    of a cluster, which take the change over while they run.
    """


def _check_name(kind: str, name: str) -> None:
    if kind.startswith("broker") and name and not name.isdigit():
        raise click.UsageError(f"the name of a broker is its id, and {name!r} is not a number")


@configs.command()
@_kind
@_name
@click.option("-a", "--all", "everything", is_flag=True, help="Show defaults too.")
@click.option("-v", "--verbose", is_flag=True, help="Show the type and the meaning of each key.")
@cluster_options
@click.pass_obj
def describe(
    stored: "StoredConfigs | None",
    target: Target,
    kind: Kind,
    name: str,
    everything: bool,
    verbose: bool,
) -> None:
    """Show the configuration of NAME; KIND broker without NAME is the cluster-wide default."""
    _check_name(kind, name)
    columns = names_of(ConfigEntry if stored is None else StoredEntry)
    rows: Sequence[StoredEntry]
    if stored is not None:
        if verbose:
            raise click.UsageError("--verbose needs a running broker, which knows the meanings")
        source = "cluster" if kind == "broker" and not name else kind
        rows = [
            StoredEntry(key=key, value=value, source=source)
            for key, value in sorted(stored.read(kind, name).items())
        ]
    else:
        if not verbose:
            columns.remove("type")
            columns.remove("meaning")
        found = target.administer(
            lambda admin: admin.describe_configs(_KINDS[kind], name, documented=verbose)
        )
        rows = [
            _row(entry)
            for entry in sorted(found, key=lambda entry: entry.name)
            if everything or entry.config_source != DEFAULT_SOURCE
        ]
    title = f"{kind} {name}".strip()
    if rows or target.as_json:
        target.show(columns, rows, title=title)
    else:
        more = "" if everything or stored is not None else "; --all shows the defaults"
        tell(f"Nothing is overridden for {title}{more}.")


def _row(entry: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        key=entry.name,
        value="(hidden)" if entry.is_sensitive else entry.value,
        source=CONFIG_SOURCES.get(entry.config_source, "unknown"),
        read_only=entry.read_only,
        type=_TYPES.get(entry.config_type),
        meaning=entry.documentation or None,
    )


@configs.command()
@_kind
@_name
@names.key_option("-s", "--set", "sets", help="Set a key.")
@names.key_option("-d", "--delete", "deletes", metavar="KEY", help="Reset a key.")
@names.key_option("--append", help="Append to a list.")
@names.key_option("--subtract", help="Remove from a list.")
@cluster_options
@click.pass_obj
def alter(
    stored: "StoredConfigs | None",
    target: Target,
    kind: Kind,
    name: str,
    sets: tuple[str, ...],
    deletes: tuple[str, ...],
    append: tuple[str, ...],
    subtract: tuple[str, ...],
) -> None:
    """Change the configuration of NAME; all changes or none."""
    _check_name(kind, name)
    if stored is not None:
        if append or subtract:
            raise click.UsageError("--append and --subtract need a running broker: use --set")
        if not (sets or deletes):
            raise click.UsageError("give at least one change: --set or --delete")
        stored.alter(kind, name, parse_configs(sets), list(deletes))
        target.done(f"Altered {kind} {name}.", AlteredConfig(kind=kind, name=name, altered=True))
        return
    changes: list[tuple[str, ConfigOperation, str | None]] = [
        (key, ConfigOperation.DELETE, None) for key in deletes
    ]
    for pairs, operation in (
        (sets, ConfigOperation.SET),
        (append, ConfigOperation.APPEND),
        (subtract, ConfigOperation.SUBTRACT),
    ):
        changes += [(key, operation, value) for key, value in parse_configs(pairs).items()]
    if not changes:
        raise click.UsageError("give at least one change: --set, --delete, --append or --subtract")
    target.administer(lambda admin: admin.alter_configs(_KINDS[kind], name, changes))
    target.done(f"Altered {kind} {name}.", AlteredConfig(kind=kind, name=name, altered=True))
