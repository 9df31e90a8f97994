"""`barnabas configs`."""

import click

from barnabas.cli.arguments import parse_pairs
from barnabas.cli.common import Target, cluster_options
from barnabas.protocol.config_resources import ConfigOperation, ResourceType

_KINDS = {
    "topic": ResourceType.TOPIC,
    "broker": ResourceType.BROKER,
    "broker-logger": ResourceType.BROKER_LOGGER,
    "group": ResourceType.GROUP,
}
_SOURCES = {
    1: "topic",
    2: "broker",
    3: "cluster",
    4: "static",
    5: "default",
    6: "logger",
    7: "client-metrics",
    8: "group",
}
_kind = click.argument("kind", type=click.Choice(list(_KINDS)))
_name = click.argument("name", default="")


@click.group()
def configs() -> None:
    """Describe and change configurations of topics, brokers and groups."""


def _check_name(kind: str, name: str) -> None:
    if kind.startswith("broker") and name and not name.isdigit():
        raise click.UsageError(f"a broker's name is its id, and {name!r} is no number")


@configs.command()
@_kind
@_name
@click.option("-a", "--all", "everything", is_flag=True, help="Show defaults too.")
@cluster_options
def describe(target: Target, kind: str, name: str, everything: bool) -> None:
    """Show the configuration of NAME; for KIND broker without NAME, the cluster's default."""
    _check_name(kind, name)
    rows = target.administer(lambda admin: admin.describe_configs(_KINDS[kind], name))
    target.show(
        ["key", "value", "source", "read-only"],
        [
            {
                "key": row.name,
                "value": "(hidden)" if row.is_sensitive else row.value,
                "source": _SOURCES.get(row.config_source, "unknown"),
                "read-only": row.read_only,
            }
            for row in sorted(rows, key=lambda row: row.name)
            if everything or row.config_source != 5
        ],
        title=f"{kind} {name}".strip(),
    )


@configs.command()
@_kind
@_name
@click.option("-s", "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set a key.")
@click.option("-d", "--delete", "deletes", multiple=True, metavar="KEY", help="Reset a key.")
@click.option("--append", multiple=True, metavar="KEY=VALUE", help="Add to a list.")
@click.option("--subtract", multiple=True, metavar="KEY=VALUE", help="Take from a list.")
@cluster_options
def alter(
    target: Target,
    kind: str,
    name: str,
    sets: tuple[str, ...],
    deletes: tuple[str, ...],
    append: tuple[str, ...],
    subtract: tuple[str, ...],
) -> None:
    """Change the configuration of NAME; all changes or none."""
    _check_name(kind, name)
    changes: list[tuple[str, ConfigOperation, str | None]] = [
        (key, ConfigOperation.DELETE, None) for key in deletes
    ]
    for pairs, operation in (
        (sets, ConfigOperation.SET),
        (append, ConfigOperation.APPEND),
        (subtract, ConfigOperation.SUBTRACT),
    ):
        changes += [(key, operation, value) for key, value in parse_pairs(pairs).items()]
    if not changes:
        raise click.UsageError("say what to change: --set, --delete, --append or --subtract")
    target.administer(lambda admin: admin.alter_configs(_KINDS[kind], name, changes))
    target.done(f"Altered {kind} {name}.", kind=kind, name=name, altered=True)
