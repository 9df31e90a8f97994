"""`barnabas profile`: the clusters that a user works with, by name."""

from collections.abc import Mapping

import click

from barnabas.cli import profiles
from barnabas.cli.arguments import parse_pairs
from barnabas.cli.client_file import SERVERS, client_file, replaced, require_protocol
from barnabas.cli.common import Target
from barnabas.cli.help import Group
from barnabas.cli.shared_options import command_config_option, refused
from barnabas.cli.tables import tell
from barnabas.config.key import ConfigError
from barnabas.config.properties import parse_properties
from barnabas.operations.answers.profile import (
    DeletedProfile,
    EditedProfile,
    NamedProfile,
    PrintedProfile,
    Profile,
    UsedProfile,
)

_json = click.option("-J", "--json", "as_json", is_flag=True, help="Print JSON, for programs.")


@click.group(cls=Group)
def profile() -> None:
    """Keep servers and security keys of clusters under names, and choose one of them.

    A command without --bootstrap-server and --command-config works on the cluster of the profile in
    use, or of BARNABAS_PROFILE. Files are in $XDG_CONFIG_HOME/barnabas, or ~/.config/barnabas.
    """


@profile.command()
@click.argument("name")
@click.option("-b", "--bootstrap-server", metavar="HOST:PORT,...", help="Brokers of the cluster.")
@command_config_option(lambda keys: keys)
@click.option(
    "-s", "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set a key of a client."
)
@_json
def create(
    name: str,
    bootstrap_server: str | None,
    properties: Mapping[str, str],
    sets: tuple[str, ...],
    as_json: bool,
) -> None:
    """Create the profile NAME with these brokers, and the keys of a file, which are copied.

    References to config providers are copied as they are.

    `profile create staging -b kafka-1:9093 --command-config staging.properties`
    """
    keys = {**properties, **parse_pairs(sets)}
    if bootstrap_server is not None:
        keys[SERVERS] = bootstrap_server
    try:
        if SERVERS not in client_file(keys):
            raise click.UsageError(f"give --bootstrap-server, or {SERVERS} in the file")
        keys = _usable(keys)
    except ConfigError as error:
        raise click.ClickException(str(error)) from None
    profiles.create(name, keys)
    text = f"Created profile {name}; `barnabas profile use {name}` chooses it."
    _target(as_json).done(text, NamedProfile(profile=name))


@profile.command()
@click.argument("name", required=False)
@click.option("--none", is_flag=True, help="Use no profile.")
@_json
def use(name: str | None, none: bool, as_json: bool) -> None:
    """Work on the cluster of the profile NAME from now on."""
    if (name is None) != none:
        raise click.UsageError("give either a NAME or --none")
    profiles.use(name)
    text = "No profile is in use." if name is None else f"Profile {name} is in use."
    _target(as_json).done(text, UsedProfile(profile=name))


@profile.command("list")
@_json
def list_profiles(as_json: bool) -> None:
    """List the profiles with their brokers."""
    current = profiles.in_use()
    rows = []
    for name in profiles.names():
        keys = profiles.read(name)
        rows.append(
            Profile(
                profile=name,
                bootstrap_servers=keys.get(SERVERS, "").split(","),
                security_protocol=keys.get("security.protocol", "PLAINTEXT"),
                in_use=name == current,
            )
        )
    _target(as_json).show(Profile, rows)


@profile.command("print")
@click.argument("name", required=False)
@click.option("--secrets", is_flag=True, help="Show passwords too.")
@_json
def print_profile(name: str | None, secrets: bool, as_json: bool) -> None:
    """Print the keys of the profile NAME, or of the one in use, as a file for --command-config."""
    name = _named(name)
    keys = profiles.read(name)
    if not secrets:
        keys = profiles.without_secrets(keys)
    if as_json:
        _target(as_json).answer(PrintedProfile(profile=name, keys=dict(keys)))
    else:
        click.echo(profiles.text_of(keys), nl=False)


@profile.command()
@click.argument("name", required=False)
@click.option("-s", "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set a key.")
@click.option("-d", "--delete", "deleted", multiple=True, metavar="KEY", help="Remove a key.")
@_json
def edit(name: str | None, sets: tuple[str, ...], deleted: tuple[str, ...], as_json: bool) -> None:
    """Change the profile NAME, or the one in use: in $VISUAL or $EDITOR, or the keys given here.

    Keys that would not work are refused, and nothing is changed then.
    """
    name = _named(name)
    before = profiles.read(name)
    if unknown := [each for each in deleted if each not in before]:
        raise click.ClickException(f"profile {name} has no {', '.join(unknown)}")
    if sets or deleted:
        kept = {key: text for key, text in before.items() if key not in deleted}
        with refused(f"profile {name}"):
            after = _usable({**kept, **parse_pairs(sets)})
    else:
        after = _edited(profiles.text_of(before))
    changed = after != before
    if changed:
        profiles.replace(name, after)
    text = f"Changed profile {name}." if changed else f"Profile {name} is as it was."
    _target(as_json).done(text, EditedProfile(profile=name, changed=changed))


def _edited(text: str) -> dict[str, str]:
    """Return the keys as the user's editor leaves them; what is refused can be edited again."""
    while True:
        edited = click.edit(text, extension=".properties")
        try:
            return _usable(parse_properties(text if edited is None else edited))
        except ConfigError as error:
            tell(f"Nothing is changed: {error}", err=True)
        text = edited or text
        click.confirm("Edit it again?", default=True, abort=True, err=True)


def _named(name: str | None) -> str:
    """Return the name of a profile, without one that of the profile in use."""
    found = name or profiles.in_use()
    if found is None:
        raise click.UsageError("no profile is in use: give a NAME")
    return found


def _usable(properties: Mapping[str, str]) -> dict[str, str]:
    """Return keys as a profile keeps them; raises ConfigError if a client could not use them."""
    from barnabas.client.security import connect_with
    from barnabas.config.client_keys import ClientKeys

    keys = client_file(properties)
    if SERVERS not in keys:
        raise ConfigError(f"{SERVERS} is missing")
    require_protocol(keys[SERVERS], keys)
    used = replaced(keys)
    connect_with(used)
    ClientKeys.of(used)
    return keys


@profile.command()
@click.argument("name")
@_json
def delete(name: str, as_json: bool) -> None:
    """Delete the profile NAME."""
    profiles.delete(name)
    made = DeletedProfile(profile=name, deleted=True)
    _target(as_json).done(f"Deleted profile {name}.", made)


def _target(as_json: bool) -> Target:
    """Return a target without a cluster."""
    return Target("", 0, as_json)
