"""RenewDelegationToken; see create_delegation_token.py."""

from types import SimpleNamespace

from barnabas.protocol.messages.renew_delegation_token import API
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
    for period_ms in (-1, 0, -5, MINUTE_MS, 30 * DAY_MS, 2**63 - 1):
        change(s, renewal(token, period_ms))
    shown(s, token)


@scenario
def beyond_the_longest_lifetime(s: Peer) -> None:
    token = made(s, creation(max_lifetime_ms=10 * MINUTE_MS))
    change(s, renewal(token))
    change(s, renewal(token, 20 * MINUTE_MS))
    shown(s, token)


@scenario
def by_others(s: Peer) -> None:
    token = made(s, creation("carol"))
    change(s, renewal(token), on=OTHER)
    token = made(s, creation("bob"))
    change(s, renewal(token, MINUTE_MS), on=OTHER)
    shown(s, token)


@scenario
def of_another_owner(s: Peer) -> None:
    token = made(s, creation(owner="carol"), version=3)
    change(s, renewal(token))
    token = made(s, creation(owner="bob"), version=3)
    change(s, renewal(token, MINUTE_MS), on=OTHER)


@scenario
def unknown_tokens(s: Peer) -> None:
    for hmac in (b"", b"a", bytes(64)):
        change(s, renewal(SimpleNamespace(hmac=hmac)))


@scenario
def token_that_has_ended(s: Peer) -> None:
    token = made(s, creation())
    change(s, expiration(token))
    change(s, renewal(token))
    token = made(s, creation())
    change(s, expiration(token, 0))
    change(s, renewal(token))
