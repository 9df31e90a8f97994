"""ExpireDelegationToken; see create_delegation_token.py."""

from types import SimpleNamespace

from barnabas.protocol.messages.expire_delegation_token import API
from tests.referee.scenario import Peer, Scenarios
from tests.referee.scenarios.create_delegation_token import (
    DAY_MS,
    MINUTE_MS,
    OTHER,
    change,
    creation,
    expiration,
    made,
    renewal,
    shown,
)

scenario = Scenarios(API)


@scenario
def periods(s: Peer) -> None:
    token = made(s, creation())
    for period_ms in (MINUTE_MS, 2 * DAY_MS, 30 * DAY_MS):
        change(s, expiration(token, period_ms))
    shown(s, token)


@scenario
def at_once(s: Peer) -> None:
    token = made(s, creation())
    change(s, expiration(token, -5))
    change(s, expiration(token, -1))
    shown(s, token)


@scenario
def renewed_before_its_end(s: Peer) -> None:
    token = made(s, creation(max_lifetime_ms=3 * DAY_MS))
    change(s, expiration(token, 5 * MINUTE_MS))
    change(s, renewal(token))
    shown(s, token)


@scenario
def by_others(s: Peer) -> None:
    token = made(s, creation("carol"))
    change(s, expiration(token), on=OTHER)
    token = made(s, creation("bob"))
    change(s, expiration(token), on=OTHER)
    shown(s, token)


@scenario
def of_another_owner(s: Peer) -> None:
    token = made(s, creation(owner="carol"), version=3)
    change(s, expiration(token))
    token = made(s, creation(owner="bob"), version=3)
    change(s, expiration(token, MINUTE_MS), on=OTHER)


@scenario
def unknown_tokens(s: Peer) -> None:
    for hmac in (b"", b"a", bytes(64)):
        change(s, expiration(SimpleNamespace(hmac=hmac)))
