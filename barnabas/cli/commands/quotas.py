"""`barnabas quotas`: list, set and remove quotas of users, client ids and addresses."""

import functools
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from barnabas.cli.arguments import parse_pairs
from barnabas.cli.common import Target, cluster_options
from barnabas.cli.help import Group
from barnabas.client.admin import Admin, Entity
from barnabas.operations.answers import quotas as answers
from barnabas.operations.answers.quotas import Quota, RemovedQuotas, SetQuotas
from barnabas.operations.quotas import QUOTAS, entity_fields, quota_rows, quota_value

Command = TypeVar("Command", bound=Callable[..., Any])
_TYPES: Final = {"user": "user", "client": "client-id", "ip": "ip"}
"""The types of entities, by the options that name them."""


@click.group(cls=Group)
def quotas() -> None:
    """List, set and remove quotas of users, client ids and addresses.

    The options have the names that they have in kafka-configs. Each broker counts for itself: a
    client that uses three brokers has its quota on each of them. Of several quotas the closest is
    in effect: one of the user by name before one of all users, and that before one of the client id
    alone; a user with a client id comes before the user alone.
    """


def _entity_options(command: Command) -> Command:
    """Add the options that name an entity, passed to the command as `entity`."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        entity: dict[str, str | None] = {}
        for option, kind in _TYPES.items():
            name, default = kwargs.pop(option), kwargs.pop(f"{option}_defaults")
            if name == "":
                raise click.UsageError(f"--{option} needs a name (--{option}-defaults: all others)")
            if name is not None and default:
                raise click.UsageError(f"--{option} and --{option}-defaults exclude each other")
            if name is not None or default:
                entity[kind] = name
        if "ip" in entity and len(entity) > 1:
            raise click.UsageError("an address has no users and clients: give --ip alone")
        return command(*args, entity=entity, **kwargs)

    decorated: Any = wrapped
    for option, what in (("ip", "address"), ("client", "client id"), ("user", "user")):
        others = f"All {'addresses' if option == 'ip' else what + 's'} without quotas of their own."
        decorated = click.option(f"--{option}-defaults", is_flag=True, help=others)(decorated)
        decorated = click.option(f"--{option}", metavar="NAME", help=f"Name of the {what}.")(
            decorated
        )
    return decorated  # type: ignore[no-any-return]


def _name(entity: Entity) -> str:
    return ", ".join(
        f"{kind} {name}" if name is not None else f"default {kind}" for kind, name in entity.items()
    )


def _named(entity: Entity) -> None:
    if not entity:
        options = ", ".join(f"--{option}, --{option}-defaults" for option in _TYPES)
        raise click.UsageError(f"give one of {options}")


@quotas.command("list")
@_entity_options
@click.option("--strict", is_flag=True, help="Leave out entities that have other parts too.")
@cluster_options
def list_quotas(target: Target, entity: Entity, strict: bool) -> None:
    """List quotas: all, or those of entities with a name.

    `quotas list --user alice` lists the quotas of alice, and of alice with each client id.
    """
    found = target.administer(lambda admin: admin.describe_client_quotas(entity, strict=strict))
    target.show(Quota, quota_rows(found))


@quotas.command(
    "set",
    epilog="Quotas: " + "; ".join(f"{key}, {unit}" for key, unit in QUOTAS.items()) + ".",
)
@_entity_options
@click.argument("pairs", nargs=-1, required=True, metavar="QUOTA=VALUE...")
@cluster_options
def set_quotas(target: Target, entity: Entity, pairs: tuple[str, ...]) -> None:
    """Set quotas of an entity; all or none.

    `quotas set --user alice --client-defaults producer_byte_rate=1MB`
    """
    _named(entity)
    try:
        changes = {key: quota_value(key, text) for key, text in parse_pairs(pairs).items()}
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    target.administer(lambda admin: admin.alter_client_quotas(entity, changes))
    made = SetQuotas(entity=answers.Entity(**entity_fields(entity)), set=changes)
    target.done(f"Set quotas of {_name(entity)}.", made)


@quotas.command()
@_entity_options
@click.argument("keys", nargs=-1, metavar="[QUOTA]...")
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_options
def remove(target: Target, entity: Entity, keys: tuple[str, ...], yes: bool) -> None:
    """Remove quotas of an entity: all of them, or those that are named."""
    _named(entity)

    async def find(admin: Admin) -> list[tuple[Entity, dict[str, float]]]:
        return await admin.describe_client_quotas(entity, strict=True)

    present = {key for _, values in target.administer(find) for key in values}
    for key in keys:
        if key not in present:
            raise click.ClickException(f"{_name(entity)} has no quota {key}")
    removed = sorted(set(keys) or present)
    if removed and not yes:
        question = f"Remove {', '.join(removed)} of {_name(entity)}?"
        click.confirm(question, abort=True, err=True)
    if removed:
        changes = dict.fromkeys(removed, None)
        target.administer(lambda admin: admin.alter_client_quotas(entity, changes))
    text = f"Removed {', '.join(removed)} of {_name(entity)}." if removed else "Nothing to remove."
    target.done(
        text, RemovedQuotas(entity=answers.Entity(**entity_fields(entity)), removed=removed)
    )
