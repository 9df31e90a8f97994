"""CreateDelegationToken. Without authentication every request is refused; test_tokens.py plays the
same scenarios with it."""

import copy
import time
from collections.abc import Callable
from typing import Any

from barnabas.protocol.messages.create_delegation_token import (
    API,
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from barnabas.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from barnabas.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from barnabas.protocol.schema import fields_of
from tests.referee.scenario import CLOSED, Peer, Scenarios

USER = "User"
MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
OTHER = "bob"
"""A connection of another user."""
scenario = Scenarios(API)


def creation(
    *renewers: str, owner: str = "", kind: str = USER, max_lifetime_ms: int = -1
) -> CreateDelegationTokenRequest:
    return CreateDelegationTokenRequest(
        owner_principal_type=kind if owner else "",
        owner_principal_name=owner,
        renewers=[CreatableRenewers(principal_type=kind, principal_name=r) for r in renewers],
        max_lifetime_ms=max_lifetime_ms,
    )


def renewal(token: Any, period_ms: int = -1) -> RenewDelegationTokenRequest:
    return RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=period_ms)


def expiration(token: Any, period_ms: int = -1) -> ExpireDelegationTokenRequest:
    return ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=period_ms)


def description(*owners: str, everything: bool = False) -> DescribeDelegationTokenRequest:
    named = [DescribeDelegationTokenOwner(principal_type=USER, principal_name=o) for o in owners]
    return DescribeDelegationTokenRequest(owners=None if everything else named)


def timeless(answer: Any) -> Any:
    """Return an answer with times in minutes from now, and without id and HMAC."""
    if answer == CLOSED:
        return answer
    answer = copy.copy(answer)
    now_ms = time.time() * 1000
    for spec in fields_of(type(answer)):
        name = spec.name
        value = getattr(answer, name)
        if "timestamp" in name and value > 0:
            setattr(answer, name, 1_000_000 + round((value - now_ms) / MINUTE_MS))
        if name in ("token_id", "hmac"):
            setattr(answer, name, len(value))
    return answer


def only(*tokens: Any) -> Any:
    """Return the function that picks these tokens out of a description."""
    ids = [each.token_id for each in tokens]

    def pick(answer: Any) -> Any:
        answer = copy.copy(answer)
        found = sorted(
            answer.tokens, key=lambda t: ids.index(t.token_id) if t.token_id in ids else -1
        )
        answer.tokens = [timeless(each) for each in found if each.token_id in ids]
        return answer

    return pick


def shown(s: Peer, token: Any, *owners: str) -> None:
    """Ask for the tokens of owners, or all, and record whether and how this one is shown."""
    s.ask(description(*owners, everything=not owners), pick=only(token))


def made(s: Peer, request: CreateDelegationTokenRequest, **options: Any) -> Any:
    """Create a token, and return it when the broker knows it: Kafka's answers before."""
    token = s.ask(request, pick=timeless, **options)
    if token != CLOSED and not token.error_code:
        _settle(s, lambda known: token.token_id in known)
    return token


def change(s: Peer, request: Any, **options: Any) -> None:
    """Renew or expire a token; return when the broker knows it."""
    answer = s.ask(request, pick=timeless, **options)
    if answer == CLOSED or answer.error_code:
        return
    end, hmac = answer.expiry_timestamp_ms, request.hmac
    gone = getattr(request, "expiry_time_period_ms", 0) < 0
    _settle(
        s,
        lambda known: (
            not gone ^ all(each.hmac != hmac for each in known.values())
            and (gone or end in [each.expiry_timestamp for each in known.values()])
        ),
    )


def _settle(s: Peer, until: Callable[[dict[str, Any]], bool]) -> None:
    asked = description(everything=True)
    s.do(asked, until=lambda answer: until({each.token_id: each for each in answer.tokens}))


@scenario
def token_of_the_requester(s: Peer) -> None:
    token = made(s, creation())
    shown(s, token)
    change(s, expiration(token))


@scenario
def token_with_renewers(s: Peer) -> None:
    token = made(s, creation("bob", "carol", "bob"))
    shown(s, token)
    change(s, expiration(token))


@scenario
def longest_lifetimes(s: Peer) -> None:
    for lifetime_ms in (0, -7, 1, MINUTE_MS, 2 * DAY_MS, 30 * DAY_MS, 2**63 - 1):
        made(s, creation(max_lifetime_ms=lifetime_ms))


@scenario
def renewer_that_is_no_user(s: Peer) -> None:
    made(s, creation("bob", kind="Group"))
    made(s, creation("bob", kind=""))
    made(s, creation(""))


@scenario(since=3)
def token_for_another_owner(s: Peer) -> None:
    owner = s.name("owner")
    token = made(s, creation(owner=owner))
    shown(s, token)
    shown(s, token, owner)
    made(s, creation(owner=owner, kind="Group"))


@scenario
def several_tokens_of_a_user(s: Peer) -> None:
    tokens = [made(s, creation()) for _ in range(3)]
    s.ask(description(everything=True), pick=only(*tokens))
    change(s, expiration(tokens[1]))
    s.ask(description(everything=True), pick=only(*tokens))
