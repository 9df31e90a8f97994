"""The delegation tokens of the cluster (KIP-48): every broker follows them in the metadata store.

A token has a node, as in Kafka 3.9. A change is one transaction: the node, and a notification that
makes every broker read it again. The HMAC of a token is not stored: each broker makes it from the
id and `delegation.token.secret.key`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final, NamedTuple

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.followed_nodes import FollowedNodes, read_all
from barnabas.broker.cluster.registration import missing_nodes
from barnabas.broker.cluster.znodes import ZnodeError
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.server.context import RequestContext
from barnabas.broker.store.metadata_store import (
    BadVersion,
    Create,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    NotAllowed,
    SessionExpired,
    SetData,
    StoreUnavailable,
)
from barnabas.config.broker import BrokerConfig
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.types import uuid_text
from barnabas.security.principal import ANONYMOUS, Principal, TokenPrincipal
from barnabas.security.sasl.credentials import DelegationToken, token_hmac

MAX_BYTES: Final = 32 << 20
"""Bytes of the nodes of all tokens, about 80,000: no more are created. Kafka has no limit."""
MAX_REQUESTER_BYTES: Final = MAX_BYTES // 8
"""Bytes of the nodes of the tokens that one principal has requested, about 10,000, so that it does
not use up the tokens of all others."""
MAX_TOKEN_BYTES: Final = 64 << 10
"""Bytes of the node of one token: some thousand renewers."""
Change = Callable[[DelegationToken], DelegationToken | None]
"""A function from a stored token to what becomes of it; None deletes it."""
_log = get_logger(__name__)


def too_many_renewers() -> KafkaError:
    """Return the error for a token that is larger than MAX_TOKEN_BYTES."""
    return KafkaError(ErrorCode.INVALID_REQUEST, "The token has too many renewers.")


class DelegationTokens(FollowedNodes[str]):
    """The tokens that this broker knows, and changes of the stored ones."""

    def __init__(self, store: MetadataStore, secret_key: str) -> None:
        super().__init__(store, {znodes.TOKEN_CHANGE: _noticed})
        self._secret_key = secret_key
        self._tokens: dict[str, DelegationToken] = {}
        self._sizes: dict[str, int] = {}
        self._bytes: Counter[Principal] = Counter()
        """The bytes of the tokens of each requester, with those that are being created."""
        self._ids: dict[bytes, str] = {}
        """Ids by HMAC."""
        self.changed: Callable[[str], None] = lambda _: None
        """Called with the id of a token that is new, changed or gone."""

    async def start(self, on_change: Callable[[], None]) -> None:
        """Load the tokens. `on_change` is called when `catch_up` should be awaited.

        Raises StoreError.
        """
        while ops := await missing_nodes(
            self._store, (znodes.DELEGATION_TOKENS, znodes.TOKEN_CHANGES)
        ):
            # Another broker may create them too.
            with suppress(NodeExists):
                await self._store.multi(ops)
        await super().start(on_change)

    def stop(self) -> None:
        """Stop following changes, and forget all tokens: no further work is done for them."""
        super().stop()
        self._tokens.clear()

    def find(self, token_id: str) -> DelegationToken | None:
        """Return a token, which may have expired; None for an unknown id."""
        return self._tokens.get(token_id)

    def known(self) -> Sequence[DelegationToken]:
        """Return all tokens, expired ones until they are deleted."""
        return list(self._tokens.values())

    async def with_hmac(self, hmac: bytes) -> DelegationToken | None:
        """Return the token with an HMAC, also one that another broker has just created.

        Raises StoreError.
        """
        if hmac not in self._ids:
            await self.catch_up()
        return self._tokens.get(self._ids.get(hmac, ""))

    def hmac(self, token_id: str) -> bytes:
        """Return the HMAC of a token: a secret."""
        return token_hmac(token_id, self._secret_key)

    async def create(self, token: DelegationToken) -> None:
        """Store a new token. Raises KafkaError if there are too many, and StoreError.

        A token counts for its requester, not for its owner: others may request tokens for an owner.
        """
        data = znodes.encode_token(token)
        if len(data) > MAX_TOKEN_BYTES:
            raise too_many_renewers()
        if (
            self._bytes[token.requester] + len(data) > MAX_REQUESTER_BYTES
            or self._bytes.total() + len(data) > MAX_BYTES
        ):
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, "There are too many tokens: expire some of them."
            )
        self._count(token.requester, len(data))
        try:
            await self._store.multi([Create(znodes.token_path(token.id), data), _notice(token.id)])
            await self._refresh(token.id)
        finally:
            self._count(token.requester, -len(data))

    async def change(self, token_id: str, change: Change) -> bool:
        """Replace a stored token with the result of `change`; return whether there was a token.

        Raises StoreError, and the errors of `change`.
        """
        found = True
        path = znodes.token_path(token_id)
        while True:
            try:
                data, stat = await self._store.get(path)
                after = change(znodes.decode_token(token_id, data, self.hmac(token_id)))
                if after is None:
                    write: Delete | SetData = Delete(path, stat.version)
                else:
                    write = SetData(path, znodes.encode_token(after), stat.version)
                await self._store.multi([write, _notice(token_id)])
            except BadVersion:
                continue
            except (NoNode, ZnodeError):
                found = False
            await self._refresh(token_id)
            return found

    async def delete_expired(self, now_ms: int) -> None:
        """Delete the tokens with which no client can log in any more. Raises StoreError."""

        def kept(token: DelegationToken) -> DelegationToken | None:
            return None if token.has_expired(now_ms) else token

        for token in self.known():
            if token.has_expired(now_ms):
                await self.change(token.id, kept)
                _log.info("delegation token expired", token=token.id, owner=str(token.owner))

    async def _load(self) -> None:
        stored = await self._store.children(znodes.DELEGATION_TOKENS)
        ids = list(filter(znodes.is_token_id, stored))
        for gone in self._tokens.keys() - set(ids):
            self._install(gone, None)
        await self._read(ids)

    def _denied(self, error: NotAllowed) -> None:
        _log.error("delegation tokens may not be read: none is accepted", path=error.path)
        for gone in [*self._tokens]:
            self._install(gone, None)

    async def _read(self, keys: Sequence[str]) -> None:
        async for token_id, data in read_all(keys, self._stored):
            self._install(token_id, data)

    async def _refresh(self, token_id: str) -> None:
        """Apply a change of our own."""
        async with self._turn:
            await self._read([token_id])

    async def _stored(self, token_id: str) -> bytes | None:
        try:
            data, _ = await self._store.get(znodes.token_path(token_id))
            return data
        except NoNode:
            return None

    def _install(self, token_id: str, data: bytes | None) -> None:
        """Replace a token with its stored data; None if it was deleted."""
        self._forget(token_id)
        if data is not None:
            self._add(token_id, data)
        self.changed(token_id)

    def _add(self, token_id: str, data: bytes) -> None:
        hmac = self.hmac(token_id)
        try:
            token = self._tokens[token_id] = znodes.decode_token(token_id, data, hmac)
        except ZnodeError as error:
            _log.error("delegation token ignored", token=token_id, reason=str(error))
            return
        self._ids[hmac] = token_id
        self._sizes[token_id] = len(data)
        self._count(token.requester, len(data))

    def _forget(self, token_id: str) -> None:
        token = self._tokens.pop(token_id, None)
        if token is not None:
            del self._ids[token.hmac]
            self._count(token.requester, -self._sizes.pop(token_id))

    def _count(self, requester: Principal, size: int) -> None:
        self._bytes[requester] += size
        if not self._bytes[requester]:
            del self._bytes[requester]


def _notice(token_id: str) -> Create:
    return Create(znodes.TOKEN_CHANGE, token_id.encode(), sequence=True)


def _noticed(data: bytes) -> str | None:
    token_id = data.decode("ascii", "replace")
    return token_id if znodes.is_token_id(token_id) else None


class TokenRequests(NamedTuple):
    """The parts of the broker that the requests for tokens work with."""

    tokens: DelegationTokens | None
    """None if they are not enabled."""
    config: Callable[[], BrokerConfig]
    now_ms: Callable[[], int]
    random_bits: Callable[[int], int]

    def enabled(self) -> DelegationTokens:
        """Return the tokens; raise KafkaError if they are not enabled."""
        if self.tokens is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        return self.tokens

    def require_allowed(self, context: RequestContext) -> None:
        """Raise KafkaError for a client that is not known by name, or known by a token: a token
        must not be the way to the next one."""
        who, listeners = context.principal, self.config().resolved_listeners()
        (protocol,) = (each.protocol for each in listeners if each.name == context.listener)
        if (
            isinstance(who, TokenPrincipal)
            or protocol == "PLAINTEXT"
            or (protocol == "SSL" and who == ANONYMOUS)
        ):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)

    def new_id(self) -> str:
        """Return the id of a new token: a uuid. As in Kafka, it does not begin with a dash."""
        while True:
            token_id = uuid_text(self.random_bits(128).to_bytes(16, "big"))
            if not token_id.startswith("-"):
                return token_id

    async def change(self, hmac: bytes, context: RequestContext, end: Callable[[int], int]) -> int:
        """Change the end of a token for one of its renewers, and return it in ms since the epoch.

        `end` gets the time now; the token is deleted if its end is before that.
        Raises KafkaError.
        """
        self.require_allowed(context)
        tokens, now_ms, expires_ms = self.enabled(), self.now_ms(), 0

        def changed(token: DelegationToken) -> DelegationToken | None:
            nonlocal expires_ms
            if token.has_expired(now_ms):
                raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
            if not token.is_renewed_by(context.principal):
                raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
            expires_ms = min(token.max_ms, end(now_ms))
            if expires_ms < now_ms:
                expires_ms = now_ms
                return None
            return replace(token, expires_ms=expires_ms)

        with reached():
            found = await tokens.with_hmac(hmac)
            if found is None or not await tokens.change(found.id, changed):
                raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return expires_ms


def refused_end_ms(code: ErrorCode) -> int:
    """Return the end in the response of a refused change: as in Kafka -1 before the token is looked
    for, and 0 after that."""
    return -1 if code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED else 0


def principals(version: int, owner: Principal, requester: Principal) -> dict[str, Any]:
    """Return the fields of a token with owner and requester; the latter from v3 on (KIP-373)."""
    fields = {"principal_type": owner.type, "principal_name": owner.name}
    if version >= 3:
        fields["token_requester_principal_type"] = requester.type
        fields["token_requester_principal_name"] = requester.name
    return fields


@contextmanager
def reached() -> Iterator[None]:
    """Turn the loss of the metadata store into a KafkaError that clients repeat."""
    try:
        yield
    except (SessionExpired, StoreUnavailable):
        text = "The metadata cannot be reached."
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text) from None
