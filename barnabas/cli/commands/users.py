"""`barnabas users`: SCRAM users, of a cluster or in the metadata of brokers that do not run."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TextIO

import click

from barnabas.cli.common import Target, cluster_options, store_options
from barnabas.cli.help import Group
from barnabas.client.user_admin import UserAdmin
from barnabas.operations.answers.users import DeletedPassword, SetPassword, User, user_rows
from barnabas.security.sasl.credentials import MAX_ITERATIONS, MIN_ITERATIONS, ScramMechanism

if TYPE_CHECKING:
    from barnabas.broker.store.metadata_store import MetadataStore
    from barnabas.cli.stored_configs import StoredConfigs

_MECHANISMS: Final = {each.value: each for each in ScramMechanism}
_mechanisms = click.option(
    "-m",
    "--mechanism",
    "mechanisms",
    multiple=True,
    type=click.Choice(list(_MECHANISMS)),
    help="Mechanism of the password; by default both.",
)


@click.group(cls=Group)
@store_options
def users() -> None:
    """List, create, change and delete users of SCRAM-SHA-256 and SCRAM-SHA-512.

    The first user exists before the broker starts for the first time with `users --data DIR set
    admin`, or `users --zookeeper HOST:PORT set admin` for brokers of a cluster.
    """


@users.command("list")
@click.argument("names", nargs=-1)
@cluster_options
@click.pass_obj
def list_users(stored: "StoredConfigs | None", target: Target, names: tuple[str, ...]) -> None:
    """List all users, or those with these NAMES, and their mechanisms."""

    async def of_store(store: "MetadataStore") -> dict[str, dict[ScramMechanism, int]]:
        from barnabas.broker.security.first_users import stored_users

        found = await stored_users(store)
        return {
            name: {how: each.iterations for how, each in found.credentials(name).items()}
            for name in found.names
            if not names or name in names
        }

    found: Mapping[str, Mapping[ScramMechanism, int]]
    if stored is not None:
        found = stored.manage_users(of_store)
    else:
        found = target.run(lambda cluster: UserAdmin(cluster).describe_users(names))
    if missing := [name for name in names if name not in found]:
        raise click.ClickException(f"no such user: {', '.join(missing)}")
    target.show(User, user_rows(found))


@users.command("set")
@click.argument("name")
@_mechanisms
@click.option(
    "--iterations",
    type=click.IntRange(MIN_ITERATIONS, MAX_ITERATIONS),
    default=MIN_ITERATIONS,
    show_default=True,
    help="Iterations of the hash: more slow down guesses, and logins.",
)
@click.option(
    "--password-file",
    type=click.File(encoding="utf-8"),
    help="File with the password, - for standard input. Without it the password is asked for.",
)
@cluster_options
@click.pass_obj
def set_user(
    stored: "StoredConfigs | None",
    target: Target,
    name: str,
    mechanisms: tuple[str, ...],
    iterations: int,
    password_file: TextIO | None,
) -> None:
    """Create the user NAME, or change its password."""
    password = _password(name, password_file)
    chosen = [_MECHANISMS[each] for each in mechanisms or _MECHANISMS]
    if not name:
        raise click.UsageError("the name of a user is not empty")
    if stored is not None:

        async def add(store: "MetadataStore") -> None:
            from barnabas.broker.security.first_users import add_users

            await add_users(store, {name: password}, chosen, iterations=iterations)

        stored.manage_users(add)
    else:
        admin = UserAdmin
        for how in chosen:
            target.run(
                lambda cluster, how=how: admin(cluster).set_password(  # type: ignore[misc]
                    name, password, how, iterations
                )
            )
    target.done(
        f"Set the password of {name} for {_names(chosen)}.",
        SetPassword(user=name, set=chosen),
    )


@users.command()
@click.argument("name")
@_mechanisms
@cluster_options
@click.pass_obj
def delete(
    stored: "StoredConfigs | None", target: Target, name: str, mechanisms: tuple[str, ...]
) -> None:
    """Delete the user NAME, or its password of one mechanism."""
    wanted = [_MECHANISMS[each] for each in mechanisms or _MECHANISMS]

    async def of_store(store: "MetadataStore") -> list[ScramMechanism]:
        from barnabas.broker.security.first_users import stored_users

        found = await stored_users(store)
        chosen = [how for how in wanted if found.find(name, how) is not None]
        for how in chosen:
            await found.delete(name, how)
        return chosen

    if stored is not None:
        deleted = stored.manage_users(of_store)
    else:
        found = target.run(lambda cluster: UserAdmin(cluster).describe_users([name]))
        deleted = [how for how in wanted if how in found.get(name, {})]
        for how in deleted:
            target.run(
                lambda cluster, how=how: UserAdmin(cluster).delete_user(name, how)  # type: ignore[misc]
            )
    if not deleted:
        raise click.ClickException(f"no such user: {name}")
    target.done(
        f"Deleted {name} for {_names(deleted)}.", DeletedPassword(user=name, deleted=deleted)
    )


def _names(mechanisms: Sequence[ScramMechanism]) -> str:
    return " and ".join(each.value for each in mechanisms)


def _password(name: str, file: TextIO | None) -> str:
    if file is None:
        password: str = click.prompt(
            f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True
        )
    else:
        password = file.read().removesuffix("\n").removesuffix("\r")
    if not password:
        raise click.ClickException("the password is empty")
    return password
