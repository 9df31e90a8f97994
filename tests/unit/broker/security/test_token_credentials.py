"""The SCRAM credentials of delegation tokens: each is made once, before its first login."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from barnabas.broker.security.delegation_tokens import DelegationTokens
from barnabas.broker.security.token_credentials import TokenCredentials
from barnabas.broker.store.embedded import EmbeddedStore
from barnabas.security.principal import Principal
from barnabas.security.sasl.credentials import (
    NO_CREDENTIAL,
    NO_TOKEN,
    DelegationToken,
    ScramCredential,
    ScramMechanism,
    StandIns,
    token_hmac,
)
from tests.support.held_offload import HeldOffload

SECRET = "the secret of the cluster"
ALICE = Principal("User", "alice")
STAND_INS = StandIns(b"cluster")
SHA_256, SHA_512 = ScramMechanism


def token(token_id: str) -> DelegationToken:
    hmac = token_hmac(token_id, SECRET)
    return DelegationToken(token_id, ALICE, ALICE, (), 100, 900, 500, hmac)


class Rig:
    def __init__(self, tokens: DelegationTokens) -> None:
        self.tokens = tokens
        self.offload = HeldOffload()
        self.tasks: list[asyncio.Task[None]] = []
        self.mechanisms = {SHA_256}
        self.credentials = TokenCredentials(
            tokens, STAND_INS, self.offload, self.spawn, lambda: self.mechanisms
        )

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    def of(
        self, token_id: str, mechanism: ScramMechanism = SHA_256
    ) -> ScramCredential | Awaitable[ScramCredential]:
        found = self.tokens.find(token_id)
        assert found is not None
        return self.credentials.credential(mechanism, found)

    async def make_all(self) -> int:
        """Let the credentials be made; return their number."""
        made = 0
        await asyncio.sleep(0)
        while self.offload.waiting:
            await self.offload.one()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            made += 1
        return made


@pytest.fixture
async def tokens(store: EmbeddedStore) -> AsyncIterator[DelegationTokens]:
    found = DelegationTokens(store.session(), SECRET)
    await found.start(lambda: None)
    yield found
    found.stop()


async def test_credential_is_made_before_the_first_login(tokens: DelegationTokens) -> None:
    await tokens.create(token("before"))
    rig = Rig(tokens)
    await tokens.create(token("after"))
    assert await rig.make_all() == 2
    for token_id in ("before", "after"):
        made = rig.of(token_id)
        assert made == STAND_INS.token_credential(SHA_256, token(token_id))
    assert await rig.make_all() == 0
    await asyncio.gather(*rig.tasks)


async def test_renewed_token_keeps_its_credential(tokens: DelegationTokens) -> None:
    rig = Rig(tokens)
    await tokens.create(token("one"))
    await rig.make_all()
    made = rig.of("one")
    await tokens.change("one", lambda found: replace(found, expires_ms=700))
    assert await rig.make_all() == 0
    assert rig.of("one") is made


async def test_credential_goes_with_its_token(tokens: DelegationTokens) -> None:
    rig = Rig(tokens)
    rig.mechanisms = {SHA_256, SHA_512}
    for token_id in ("one", "two"):
        await tokens.create(token(token_id))
    assert await rig.make_all() == 4
    await tokens.change("one", lambda _: None)
    assert {token_id for token_id, _ in rig.credentials._made} == {"two", NO_TOKEN.id}


async def test_credential_of_a_token_that_is_gone_meanwhile_is_not_kept(
    tokens: DelegationTokens,
) -> None:
    rig = Rig(tokens)
    await tokens.create(token("one"))
    await asyncio.sleep(0)
    await tokens.change("one", lambda _: None)
    assert await rig.make_all() == 1
    assert {token_id for token_id, _ in rig.credentials._made} == {NO_TOKEN.id}


async def test_no_token_is_found_as_a_token_is_and_has_no_usable_credential(
    tokens: DelegationTokens,
) -> None:
    rig = Rig(tokens)
    for mechanism in ScramMechanism:
        assert rig.credentials.credential(mechanism, NO_TOKEN) is NO_CREDENTIAL
        assert STAND_INS.credential(mechanism, "none", NO_CREDENTIAL) is not NO_CREDENTIAL
    assert not rig.offload.waiting


async def test_broker_that_stops_makes_no_more(tokens: DelegationTokens) -> None:
    rig = Rig(tokens)
    for number in range(10):
        await tokens.create(token(f"token-{number}"))
    await asyncio.sleep(0)
    tokens.stop()
    assert await rig.make_all() == 1
    await asyncio.gather(*rig.tasks)


async def test_first_logins_wait_for_one_and_the_same_work(tokens: DelegationTokens) -> None:
    """A mechanism that was enabled later."""
    rig = Rig(tokens)
    await tokens.create(token("one"))
    await rig.make_all()
    first, second = rig.of("one", SHA_512), rig.of("one", SHA_512)
    assert isinstance(first, Awaitable)
    assert isinstance(second, Awaitable)
    assert await rig.make_all() == 1
    assert await first is await second is rig.of("one", SHA_512)
