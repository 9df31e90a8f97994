"""TLS between a socket's transport and a connection, which uses it as its transport.

The TLS of uvloop has further buffers, of hundreds of KB for a peer that does not read. Here the
connection hears at once that the socket is full, as on a listener without TLS.
"""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from struct import Struct
from typing import Any, Protocol

from barnabas.broker.loop.offload import Offload
from barnabas.broker.loop.slices import TURN_S, Slicer
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.server.connection import Connection
from barnabas.broker.server.failure_log import FailureLog
from barnabas.config.key import ConfigError
from barnabas.config.tls_keys import TlsKeys
from barnabas.metrics.registry import Cell
from barnabas.protocol.errors import ProtocolError
from barnabas.security.certificates import Certificate, parse_certificate
from barnabas.security.principal import ANONYMOUS, USER, Principal
from barnabas.security.principal_mapping import parse_rules
from barnabas.security.tls import Tls, file_versions, files_of, server_tls

HANDSHAKE_S = 10.0
"""The seconds that a handshake may take."""
STEP = 128 * 1024
"""The bytes that are received, decrypted or encrypted in one step. OpenSSL's buffers of a
connection never shrink below the largest step, so it is small."""
HANDSHAKE_STEP = 17 * 1024
"""The same until the handshake is done: one record."""
RECORDS = 64
"""The records that OpenSSL is given at once. It handles those without data, of 20 us each for a
KeyUpdate, in one call."""
DATALESS_RECORDS = 2 * RECORDS
"""The records without data, one after another, for which a connection is closed."""
UNREAD_REPLIES = 4096
"""The bytes of OpenSSL's own replies in memory beyond which nothing more is read from the peer."""
WARNED_DAYS = 30
"""The days before the end of a certificate from which it is warned of."""
_HEADER = 5
"""The bytes before the content of a record; the last two are the size of the content."""
_size_at = Struct(">H").unpack_from
_NOTABLE_S = 0.001
"""The time of decryption that counts against that of other connections."""
_NOTHING = memoryview(b"")
_QUEUE = "tls"
_Source = tuple[TlsKeys, list[tuple[int, int, int] | None]]
_log = get_logger(__name__)
_scratch = memoryview(bytearray(STEP))
"""The memory for received bytes, which are taken out before the event loop continues."""


class Certificates:
    """A TLS context that is made again when its keys or its files have changed."""

    def __init__(
        self, listener: str, keys: TlsKeys, make: Callable[[TlsKeys], Tls], offload: Offload
    ) -> None:
        """Raises ConfigError if the keys give no context."""
        self.listener = listener
        self._make = make
        self._offload = offload
        self._reloading = asyncio.Lock()
        self._accepted: _Source = keys, file_versions(files_of(keys))
        """The keys of the context, and the versions of their files."""
        self._refused: _Source | None = None
        """The last ones that gave no context."""
        self._tls = make(keys)

    @property
    def context(self) -> ssl.SSLContext:
        """The context for new connections."""
        return self._tls.context

    @property
    def certificate(self) -> Certificate | None:
        """The own certificate; None for a client without one."""
        return self._tls.certificate

    async def connect(
        self, factory: Callable[[], asyncio.BufferedProtocol], host: str, port: int
    ) -> object:
        """Connect a protocol to another broker over TLS. Raises OSError, also for a handshake
        that failed."""
        transport, _ = await asyncio.get_running_loop().create_connection(
            factory, host, port, ssl=self.context, server_hostname=host
        )
        return transport

    async def check(self, keys: TlsKeys) -> None:
        """Raise ConfigError if keys, or files that have changed, give no context, or a certificate
        of another name."""
        if await self._source(keys) != self._accepted:
            await self._offload.submit(_QUEUE, lambda: self._made_of(keys))

    async def reload(self, keys: TlsKeys, *, unchanged_too: bool = False) -> bool:
        """Use other keys, or files that have changed; keep the old ones if the new are useless.

        Return whether there is a new context.
        """
        async with self._reloading:
            source = await self._source(keys)
            # The same files are refused once, not at each look at them.
            if source in (self._accepted, self._refused) and not unchanged_too:
                return False
            try:
                self._tls = await self._offload.submit(_QUEUE, lambda: self._made_of(keys))
            except (ConfigError, ValueError, ssl.SSLError) as error:
                self._refused = source
                _log.error("certificate refused", listener=self.listener, reason=str(error))
                return False
            self._accepted, self._refused = source, None
        new = self._tls.certificate
        expires = new.not_after.isoformat() if new is not None else None
        _log.info("certificate loaded", listener=self.listener, expires=expires)
        return True

    async def _source(self, keys: TlsKeys) -> _Source:
        return keys, await self._offload.submit(_QUEUE, lambda: file_versions(files_of(keys)))

    def warn_of_expiry(self, now_ms: int) -> None:
        """Log a warning if the certificate has expired, will soon, or is not valid yet."""
        certificate, now = self.certificate, datetime.fromtimestamp(now_ms / 1000, UTC)
        if certificate is None:
            return
        days = (certificate.not_after - now).total_seconds() / 86_400
        if days >= WARNED_DAYS and certificate.not_before <= now:
            return
        state = "has expired" if days < 0 else "expires soon"
        _log.warning(
            f"certificate {state if days < WARNED_DAYS else 'is not valid yet'}",
            listener=self.listener,
            subject=certificate.subject,
            begins=certificate.not_before.isoformat(),
            expires=certificate.not_after.isoformat(),
        )

    def _made_of(self, keys: TlsKeys) -> Tls:
        new, old = self._make(keys), self._tls.certificate
        if new.certificate is not None and old is not None:
            _require_same_names(old, new.certificate, keys)
        return new


def _require_same_names(old: Certificate, new: Certificate, keys: TlsKeys) -> None:
    """Raise ConfigError if a certificate cannot take the place of another, with Kafka's texts."""
    if new.subject != old.subject and not keys.ssl_allow_dn_changes:
        raise ConfigError(
            f"Keystore DistinguishedName does not match: existing={old.subject}, new={new.subject}"
        )
    if not old.alternative_names <= new.alternative_names and not keys.ssl_allow_san_changes:
        raise ConfigError(
            "Keystore SubjectAltNames do not match: the new certificate lacks alternative names "
            "of the existing one"
        )


class ListenerTls:
    """The TLS of a listener: certificates, principals of clients, and failed handshakes."""

    def __init__(
        self,
        listener: str,
        keys: TlsKeys,
        offload: Offload,
        failures: Cell,
        *,
        identifies: bool = True,
    ) -> None:
        """Without `identifies` clients are known by SASL, whatever certificate they have.

        Raises ConfigError.
        """
        self.certificates = Certificates(listener, keys, server_tls, offload)
        self._principal_name = parse_rules(keys.ssl_principal_mapping_rules)
        self._identifies = identifies
        self._failures = FailureLog("handshake failed", failures)

    def over(
        self, connection: Connection, slicer: Slicer, known: Callable[[int], None] | None = None
    ) -> "TlsTransport":
        """Return the protocol of a new socket, with `connection` behind it.

        `known` is called with the connection's id when its handshake is done.
        """

        def secured(certificate: bytes | None) -> None:
            connection.principal = self._principal(certificate)
            if known is not None:
                known(connection.connection_id)

        def failed(reason: str) -> None:
            self._failures.failed(connection, reason)

        context = self.certificates.context
        return TlsTransport(connection, context, slicer, secured=secured, failed=failed)

    def _principal(self, certificate: bytes | None) -> Principal:
        """Return the principal of a client; raise ValueError if no rule applies to its name."""
        if certificate is None or not self._identifies:
            return ANONYMOUS
        subject = parse_certificate(certificate).subject
        name = self._principal_name(subject)
        if name is None:
            raise ValueError(f"no rule of ssl.principal.mapping.rules applies to {subject}")
        return Principal(USER, name)


class TlsUser(Protocol):
    """The connection on a TlsTransport: a buffered protocol."""

    def connection_made(self, transport: Any, /) -> None: ...

    def connection_lost(self, exc: Exception | None, /) -> None: ...

    def get_buffer(self, sizehint: int, /) -> memoryview: ...

    def buffer_updated(self, nbytes: int, /) -> None: ...

    def eof_received(self) -> bool | None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def report(self, error: ProtocolError, /) -> None:
        """Tell of the bytes for which the connection is closed."""
        ...


class TlsTransport(asyncio.BufferedProtocol):
    """The protocol of a socket, and the transport of the connection on it."""

    def __init__(
        self,
        connection: TlsUser,
        context: ssl.SSLContext,
        slicer: Slicer,
        *,
        secured: Callable[[bytes | None], None],
        failed: Callable[[str], None],
    ) -> None:
        """`secured` is called with the peer's certificate in DER when the handshake is done, and
        may raise ValueError to refuse it; `failed` with the reason why it was not."""
        self._connection = connection
        self._secured = secured
        self._failed = failed
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._context = context
        self._slicer = slicer
        self._raw: Any = None
        self._received = _NOTHING
        """Received bytes that OpenSSL does not have yet."""
        self._header = b""
        """The beginning of a record's header, behind them."""
        self._left_of_record = 0
        """The bytes of the current record that OpenSSL does not have yet."""
        self._dataless = 0
        """The records since the last data."""
        self._unread_replies = 0
        self._turn_ends_at = 0.0
        self._shaking = True
        self._put_off = False
        self._paused = False
        """Whether the connection has stopped reading."""
        self._raw_paused = False
        self._eof = False
        self._deadline: asyncio.TimerHandle | None = None

    # -- the socket's side -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = transport
        self._connection.connection_made(self)
        if not self._paused:
            self._start_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._shaking:
            self._end_handshake("the peer closed the connection")
        self._connection.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        # What a stranger sends waits in memory while others shake hands.
        return _scratch[:HANDSHAKE_STEP] if self._shaking else _scratch

    def buffer_updated(self, nbytes: int) -> None:
        received = _scratch[:nbytes]
        self._received = memoryview(self._header + received) if self._header else received
        self._header = b""
        self._receive()
        if self._received:
            self._received = memoryview(bytes(self._received))

    def eof_received(self) -> bool:
        self._incoming.write_eof()
        self._receive()
        return not self._raw.is_closing()

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        replies, self._unread_replies = self._unread_replies, 0
        self._connection.resume_writing()
        if replies > UNREAD_REPLIES:
            asyncio.get_running_loop().call_soon(self._receive)

    # -- the connection's side -------------------------------------------------------------------

    def get_extra_info(self, name: str) -> Any:
        return self._context if name == "sslcontext" else self._raw.get_extra_info(name)

    def set_write_buffer_limits(self, high: int) -> None:
        self._raw.set_write_buffer_limits(high=high)

    def get_write_buffer_size(self) -> int:
        return int(self._raw.get_write_buffer_size())

    def is_closing(self) -> bool:
        return bool(self._raw.is_closing())

    def pause_reading(self) -> None:
        self._paused = True
        self._pause_raw()

    def resume_reading(self) -> None:
        self._paused = False
        if self._deadline is None:
            self._start_clock()
        # Received bytes come first; the connection is in the middle of serving others.
        asyncio.get_running_loop().call_soon(self._receive)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        whole = memoryview(data)
        encrypted = []
        try:
            for at in range(0, len(whole), STEP):
                self._tls.write(whole[at : at + STEP])
                encrypted.append(self._outgoing.read())
        except ssl.SSLError:
            # The peer is gone without TLS's own mark of the end: it reads nothing more.
            self._raw.abort()
            return
        self._raw.writelines(encrypted)

    def writelines(self, parts: list[bytes | memoryview]) -> None:
        # A record of TLS costs more than a copy of its bytes.
        self.write(parts[0] if len(parts) == 1 else b"".join(parts))

    def close(self) -> None:
        """Close after the written bytes, with TLS's own mark of the end."""
        if not self._shaking and not self._raw.is_closing():
            # The peer's mark is not waited for.
            with suppress(ssl.SSLError):
                self._tls.unwrap()
            self._flush()
        self._raw.close()

    def abort(self) -> None:
        if self._shaking:
            self._end_handshake(None)
        self._raw.abort()

    # -- records ---------------------------------------------------------------------------------

    def _receive(self) -> None:
        """Shake hands, then pass on what was received, until the connection pauses or the turn
        ends."""
        if self._put_off or self._raw.is_closing():
            return
        self._turn_ends_at = self._slicer.monotonic() + TURN_S
        if not self._incoming.pending:
            self._feed()
        if self._slicer.crowded:
            self._go_on_later()
            return
        try:
            if not self._shaking or self._shake_hands():
                self._decrypt()
        except ssl.SSLError as error:
            self._break(error)

    def _feed(self) -> bool:
        """Give OpenSSL the next received records; return False if there are none in this turn."""
        if self._outgoing.pending:
            self._flush()
        if (
            not self._received
            or self._unread_replies > UNREAD_REPLIES
            or self._slicer.monotonic() > self._turn_ends_at
        ):
            return False
        if self._dataless >= DATALESS_RECORDS:
            self._connection.report(ProtocolError(f"{self._dataless} TLS records without data"))
            self._raw.abort()
            return False
        self._incoming.write(self._next_records())
        return True

    def _next_records(self) -> memoryview:
        """Take received bytes up to the end of a record, or all if the last one is not whole.

        The beginning of a header stays here until it is whole.
        """
        data = self._received
        size, at, count = len(data), self._left_of_record, 0
        while count < RECORDS and at + _HEADER <= size:
            at += _HEADER + _size_at(data, at + 3)[0]
            count += 1
        if not self._shaking:
            self._dataless += count
        self._left_of_record = max(0, at - size)
        self._received = data[at:]
        if len(self._received) < _HEADER:
            self._header, self._received = bytes(self._received), _NOTHING
        return data[:at]

    def _wait(self) -> None:
        """Wait for the socket, or for the next turn."""
        if self._raw.is_closing():
            return
        if self._unread_replies > UNREAD_REPLIES:
            self._pause_raw()
        elif self._received:
            self._go_on_later()
        elif self._raw_paused and not self._paused:
            self._raw_paused = False
            self._raw.resume_reading()

    def _pause_raw(self) -> None:
        if not self._raw_paused:
            self._raw_paused = True
            self._raw.pause_reading()

    def _go_on_later(self) -> None:
        """Continue in the next iteration of the event loop: other work has its turn before."""
        self._put_off = True
        self._pause_raw()
        asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._put_off = False
        self._receive()

    def _decrypt(self) -> None:
        """Pass on received bytes, until the connection pauses or the turn ends."""
        connection, monotonic = self._connection, self._slicer.monotonic
        read: Any = self._tls.read
        going_on = True
        while going_on and not self._paused and not self._raw.is_closing():
            space = connection.get_buffer(-1)
            room, filled, ended = len(space), 0, False
            begun_at = monotonic()
            try:
                # A record has 16 KB at most: several of them are served together.
                while filled < room:
                    try:
                        count = read(room - filled, space[filled:] if filled else space)
                    except ssl.SSLWantReadError:
                        going_on = self._feed()
                        if not going_on:
                            break
                    else:
                        if not count:
                            ended = True
                            break
                        filled += count
                        self._dataless = 0
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                ended = True
            finally:
                took = monotonic() - begun_at
                if took > _NOTABLE_S:
                    self._slicer.spend(took)
                if filled:
                    connection.buffer_updated(filled)
            if ended:
                self._end()
                return
        if not going_on:
            self._wait()

    def _end(self) -> None:
        """Tell the connection once that the peer sends no more."""
        if not self._eof:
            self._eof = True
            if not self._connection.eof_received():
                self.close()

    def _flush(self) -> None:
        """Send what OpenSSL has to say itself."""
        replies = self._outgoing.read()
        if replies:
            self._raw.write(replies)
            unread = self._raw.get_write_buffer_size()
            self._unread_replies = self._unread_replies + len(replies) if unread else 0

    # -- the handshake ---------------------------------------------------------------------------

    def _shake_hands(self) -> bool:
        """Take the next steps; return whether the handshake is done, and the peer may stay."""
        while True:
            if self._slicer.busy:
                # A step takes milliseconds, and many may connect at the same time.
                self._go_on_later()
                return False
            begun = self._slicer.monotonic()
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                if not self._feed():
                    self._wait()
                    return False
            finally:
                self._slicer.spend(self._slicer.monotonic() - begun)
        self._flush()
        return self._accept()

    def _start_clock(self) -> None:
        """Limit the time of the handshake from now on; a connection that is held has not begun."""
        if self._shaking:
            self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_S, self._too_late)

    def _accept(self) -> bool:
        """End the handshake; return whether the peer may stay."""
        try:
            self._secured(self._tls.getpeercert(binary_form=True))
        except ValueError as error:
            self._end_handshake(str(error))
            self._raw.close()
            return False
        self._end_handshake(None)
        return True

    def _end_handshake(self, reason: str | None) -> None:
        self._shaking = False
        if self._deadline is not None:
            self._deadline.cancel()
        if reason is not None:
            self._failed(reason)

    def _too_late(self) -> None:
        self._end_handshake(f"no handshake in {HANDSHAKE_S:g} s")
        self._raw.abort()

    def _break(self, error: ssl.SSLError) -> None:
        """Close the connection after bytes that are not TLS, or a handshake that failed."""
        if self._shaking:
            self._end_handshake(_reason(error))
        # OpenSSL's alert tells the peer what was wrong.
        self._flush()
        self._raw.close()


def _reason(error: ssl.SSLError) -> str:
    if error.reason in ("HTTP_REQUEST", "WRONG_VERSION_NUMBER"):
        return "the peer does not speak TLS"
    if isinstance(error, ssl.SSLEOFError):
        return "the peer closed the connection"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate is refused: {error.verify_message}"
    return (error.reason or str(error)).replace("_", " ").lower()
