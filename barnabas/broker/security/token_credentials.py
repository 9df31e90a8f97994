"""The SCRAM credentials of delegation tokens, which a login only finds.

It takes milliseconds to make one, and anyone can send ids of tokens. So each is made once, after
this broker has read the token. A login with an unknown id then does the same as one with a known
id.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from functools import partial
from typing import Any, Final

from barnabas.broker.loop.offload import Offload
from barnabas.broker.security.delegation_tokens import DelegationTokens
from barnabas.security.sasl.credentials import (
    NO_CREDENTIAL,
    NO_TOKEN,
    DelegationToken,
    ScramCredential,
    ScramMechanism,
    StandIns,
)

_QUEUE: Final = "credentials of tokens"
_Key = tuple[str, ScramMechanism]


class TokenCredentials:
    """The tokens of a broker with their credentials, as logins use them."""

    def __init__(
        self,
        tokens: DelegationTokens,
        stand_ins: StandIns,
        offload: Offload,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        mechanisms: Callable[[], Collection[ScramMechanism]],
    ) -> None:
        """`mechanisms` returns those by which clients may log in."""
        self._tokens = tokens
        self._stand_ins = stand_ins
        self._offload = offload
        self._spawn = spawn
        self._mechanisms = mechanisms
        self._made: dict[_Key, ScramCredential] = {
            (NO_TOKEN.id, mechanism): NO_CREDENTIAL for mechanism in ScramMechanism
        }
        self._being_made: dict[_Key, asyncio.Future[ScramCredential]] = {}
        self._new: dict[str, None] = {}
        """Ids of tokens that may lack a credential."""
        self._at_work = False
        tokens.changed = self._changed
        for token in tokens.known():
            self._changed(token.id)

    def find(self, token_id: str) -> DelegationToken | None:
        """Return a token, which may have expired; None for an unknown id."""
        return self._tokens.find(token_id)

    def credential(
        self, mechanism: ScramMechanism, token: DelegationToken
    ) -> ScramCredential | Awaitable[ScramCredential]:
        """Return the credential of a token; an awaitable while it is being made."""
        key = (token.id, mechanism)
        return self._made.get(key) or self._being_made.get(key) or self._make(key, token)

    def _make(self, key: _Key, token: DelegationToken) -> "asyncio.Future[ScramCredential]":
        token_id, mechanism = key
        made = self._offload.submit(
            _QUEUE, partial(self._stand_ins.token_credential, mechanism, token)
        )
        self._being_made[key] = made

        def keep(done: "asyncio.Future[ScramCredential]") -> None:
            del self._being_made[key]
            if not done.cancelled() and self._tokens.find(token_id) is not None:
                self._made[key] = done.result()

        made.add_done_callback(keep)
        return made

    def _changed(self, token_id: str) -> None:
        if self._tokens.find(token_id) is None:
            for mechanism in ScramMechanism:
                self._made.pop((token_id, mechanism), None)
            return
        self._new[token_id] = None
        if not self._at_work:
            self._at_work = True
            self._spawn(self._make_all())

    async def _make_all(self) -> None:
        while self._new:
            token_id, _ = self._new.popitem()
            for mechanism in self._mechanisms():
                token = self._tokens.find(token_id)
                if token is not None:
                    found = self.credential(mechanism, token)
                    if not isinstance(found, ScramCredential):
                        await found
        self._at_work = False
