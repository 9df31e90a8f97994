"""`barnabas tokens`: delegation tokens (KIP-48)."""

import os
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import click

from barnabas.cli.common import Target, cluster_options
from barnabas.cli.help import Group
from barnabas.client.cluster import Cluster
from barnabas.client.user_admin import UserAdmin
from barnabas.operations.answers.model import fields_of
from barnabas.operations.answers.tokens import ChangedToken, NewToken, Token
from barnabas.operations.quantities import time_text
from barnabas.security.principal import USER, Principal
from barnabas.security.sasl.credentials import DelegationToken

_HOUR_MS: Final = 3_600_000
_id = click.argument("token_id", metavar="ID")


@click.group(cls=Group)
def tokens() -> None:
    """Create, renew, expire and describe delegation tokens.

    A program logs in with a token as its owner, and needs no password for that. The brokers need
    delegation.token.secret.key, and this command a login (--command-config).
    """


def _principal(text: str) -> Principal:
    if ":" not in text:
        raise click.UsageError(f"{text!r} is not TYPE:NAME; did you mean {USER}:{text}?")
    return Principal.parse(text)


def _row(token: DelegationToken) -> Token:
    return Token(
        id=token.id,
        owner=str(token.owner),
        requester=str(token.requester),
        renewers=[str(each) for each in token.renewers],
        issued_at_ms=token.issued_ms,
        expires_at_ms=token.expires_ms,
        latest_end_at_ms=token.max_ms,
    )


def _properties(token: DelegationToken) -> str:
    return (
        "sasl.mechanism=SCRAM-SHA-256\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{token.id}" password="{b64encode(token.hmac).decode()}" tokenauth="true";\n'
    )


@tokens.command()
@click.option("--owner", metavar="TYPE:NAME", help="Owner, if it is not the user that logs in.")
@click.option(
    "--renewer", "renewers", multiple=True, metavar="TYPE:NAME", help="User who may renew it too."
)
@click.option(
    "--max-hours",
    type=click.FloatRange(0, min_open=True),
    help="Longest lifetime in hours. By default that of the brokers.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the login to this file, for clients, readable by its owner alone, and do not "
    "print the HMAC.",
)
@cluster_options
def create(
    target: Target,
    owner: str | None,
    renewers: Sequence[str],
    max_hours: float | None,
    output: Path | None,
) -> None:
    """Create a token, and print it with its HMAC, which is the secret."""
    of = None if owner is None else _principal(owner)
    others = [_principal(each) for each in renewers]
    lifetime_ms = -1 if max_hours is None else max(1, int(max_hours * _HOUR_MS))
    token = target.run(
        lambda cluster: UserAdmin(cluster).create_token(
            owner=of, renewers=others, max_lifetime_ms=lifetime_ms
        )
    )
    made = _row(token)
    if output is not None:
        _write(output, _properties(token))
    if output is None or target.as_json:
        hmac = None if output is not None else b64encode(token.hmac).decode()
        made = NewToken(**fields_of(made), hmac=hmac)
    target.show_one(made)


def _write(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


@tokens.command()
@click.option(
    "--owner", "owners", multiple=True, metavar="TYPE:NAME", help="Only tokens of this principal."
)
@cluster_options
def describe(target: Target, owners: Sequence[str]) -> None:
    """List the tokens that the user may see, without their HMACs."""
    of = [_principal(each) for each in owners] or None
    found = target.run(lambda cluster: UserAdmin(cluster).describe_tokens(of))
    rows = [_row(each) for each in sorted(found, key=lambda token: token.issued_ms)]
    target.show(Token, rows)


@tokens.command()
@_id
@click.option(
    "--hours", type=click.FloatRange(0, min_open=True), help="Hours from now, at most the brokers'."
)
@cluster_options
def renew(target: Target, token_id: str, hours: float | None) -> None:
    """Put off the end of the token with this ID."""
    _change_end(target, token_id, hours, UserAdmin.renew_token)


@tokens.command()
@_id
@click.option(
    "--hours", type=click.FloatRange(0, min_open=True), help="Hours from now. By default at once."
)
@cluster_options
def expire(target: Target, token_id: str, hours: float | None) -> None:
    """End the token with this ID."""
    _change_end(target, token_id, hours, UserAdmin.expire_token)


def _change_end(
    target: Target,
    token_id: str,
    hours: float | None,
    change: Callable[[UserAdmin, bytes, int], Awaitable[int]],
) -> None:
    """Change the end of a token, and tell it. Without hours the period is -1."""
    period_ms = -1 if hours is None else max(1, int(hours * _HOUR_MS))

    async def work(cluster: Cluster) -> int:
        admin = UserAdmin(cluster)
        return await change(admin, await _hmac(admin, token_id), period_ms)

    end_ms = target.run(work)
    text = f"Token {token_id} expires at {time_text(end_ms)}."
    target.done(text, ChangedToken(id=token_id, expires_at_ms=end_ms))


async def _hmac(admin: UserAdmin, token_id: str) -> bytes:
    """Return the HMAC of a token, which is too secret for an argument."""
    for token in await admin.describe_tokens():
        if token.id == token_id:
            return token.hmac
    raise click.ClickException(f"no such token, or one of another user: {token_id}")
