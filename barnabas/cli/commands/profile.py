"""`barnabas profile`: the clusters that a user works with, by name."""

from collections.abc import Mapping
from typing import Any

import click

from barnabas.cli import profiles
from barnabas.cli.arguments import parse_pairs
from barnabas.cli.client_file import SERVERS, client_file, replaced, require_protocol
from barnabas.cli.common import Target
from barnabas.cli.help import Group
from barnabas.cli.shared_options import command_config_option

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
    from barnabas.client.security import connect_with
    from barnabas.config.client_keys import ClientKeys
    from barnabas.config.key import ConfigError

    try:
        keys = client_file({**properties, **parse_pairs(sets)})
        if bootstrap_server is not None:
            keys[SERVERS] = bootstrap_server
        if SERVERS not in keys:
            raise click.UsageError(f"give --bootstrap-server, or {SERVERS} in the file")
        require_protocol(keys[SERVERS], keys)
        used = replaced(keys)
        connect_with(used)
        ClientKeys.of(used)
    except ConfigError as error:
        raise click.ClickException(str(error)) from None
    profiles.create(name, keys)
    _done(as_json, f"Created profile {name}; `barnabas profile use {name}` chooses it.", name)


@profile.command()
@click.argument("name", required=False)
@click.option("--none", is_flag=True, help="Use no profile.")
@_json
def use(name: str | None, none: bool, as_json: bool) -> None:
    """Work on the cluster of the profile NAME from now on."""
    if (name is None) != none:
        raise click.UsageError("give either a NAME or --none")
    profiles.use(name)
    _done(as_json, "No profile is in use." if name is None else f"Profile {name} is in use.", name)


@profile.command("list")
@_json
def list_profiles(as_json: bool) -> None:
    """List the profiles with their brokers."""
    current = profiles.in_use()
    rows = []
    for name in profiles.names():
        keys = profiles.read(name)
        rows.append(
            {
                "profile": name,
                "bootstrap_servers": keys.get(SERVERS, "").split(","),
                "security_protocol": keys.get("security.protocol", "PLAINTEXT"),
                "in_use": name == current,
            }
        )
    columns = ["profile", "bootstrap_servers", "security_protocol", "in_use"]
    Target("", 0, as_json).show(columns, rows)


@profile.command()
@click.argument("name")
@_json
def delete(name: str, as_json: bool) -> None:
    """Delete the profile NAME."""
    profiles.delete(name)
    _done(as_json, f"Deleted profile {name}.", name, deleted=True)


def _done(as_json: bool, text: str, name: str | None, **facts: Any) -> None:
    Target("", 0, as_json).done(text, profile=name, **facts)
