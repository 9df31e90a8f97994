"""A script that writes the committed seeds of the corpus: one valid input of each kind."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding

from barnabas.protocol.apis import APIS, api
from barnabas.protocol.codec import encode
from barnabas.protocol.header import encode_request_header, encode_response_header
from barnabas.protocol.messages import api_versions, sasl_authenticate, sasl_handshake
from barnabas.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from barnabas.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.record import Record, build_batch
from barnabas.security.sasl.exchange import AuthenticationFailed, ClientExchange
from tests.support.certificates import Authority
from tests.support.fuzz_connections import recorded_flights
from tests.support.fuzz_sasl import (
    CLIENTS,
    KEY,
    SEPARATOR,
    SERVERS,
    by_scram,
    by_token,
    conversation,
    web_token,
)
from tests.support.fuzz_targets import REQUESTS, filled
from tests.support.sasl_exchanges import converse

Seed = tuple[str, str, bytes]
"""The target, the name of the file, and the input."""

CORPUS = Path(__file__).parent / "corpus"


def seeds() -> Iterator[Seed]:
    """Yield the seeds."""
    last = dict(REQUESTS)
    for index, (key, version) in enumerate(REQUESTS):
        if version in (api(key).versions[0], api(key).flexible, last[key]):
            name = f"{api(key).name}-v{version}"
            body = encode(filled(api(key).request, version), version)
            yield "request", name, index.to_bytes(2, "big") + body
            head = encode_request_header(key, version, 7, "seed")
            yield "header", name, head
            if version == last[key]:
                message = head + body
                yield "frame", name, b"\x10" + len(message).to_bytes(4, "big") + message
    records = [Record(i, i, b"key", b"value" * 20, (("h", b"x"),)) for i in range(3)]
    for codec in Compression:
        for target in ("batches", "columns"):
            yield target, codec.name.lower(), build_batch(records, compression=codec)
    yield from _sasl_seeds()
    yield from _authentication_seeds()
    yield from _login_seeds()
    yield from _tls_seeds()


def _sasl_seeds() -> Iterator[Seed]:
    servers, clients = [*SERVERS], [*CLIENTS]
    for client, (server, _) in CLIENTS.items():
        messages = conversation(client)
        sent = SEPARATOR.join(messages[::2])
        yield "sasl", client, bytes([servers.index(server)]) + sent
        answers = SEPARATOR.join(messages[1::2])
        yield "sasl_client", client, bytes([clients.index(client)]) + answers
    plain, scram = (servers.index(name) for name in ("PLAIN", "SCRAM-SHA-256"))
    of_scram, real, any_key = (
        servers.index(name) for name in ("PLAIN of SCRAM", "OAUTHBEARER", "OAUTHBEARER of any key")
    )
    yield "sasl", "plain-wrong", bytes([plain]) + b"alice\0alice\0wrong"
    yield "sasl", "plain-unknown", bytes([of_scram]) + b"\0bob\0secret"
    yield "sasl", "plain-of-scram", bytes([of_scram]) + b"\0alice\0secret"
    wrong = {
        "wrong": by_scram("SCRAM-SHA-256", password="wrong"),
        "unknown": by_scram("SCRAM-SHA-256", "b=o,b"),
        "expired": by_token("SCRAM-SHA-256", "old"),
    }
    for name, exchange in wrong.items():
        yield "sasl", f"scram-{name}", bytes([scram]) + SEPARATOR.join(_refused(exchange))
    first, final = conversation("scram-256")[::2]
    headers = {"binding": b"p=tls-unique,,", "other-header": b"y,,", "own-id": b"n,a=alice,"}
    for name, header in headers.items():
        changed = header + first.removeprefix(b"n,,")
        yield "sasl", f"scram-{name}", bytes([scram]) + changed + SEPARATOR + final
    for failed in ("e=other-error", "v=" + "A" * 44):
        answers = conversation("scram-256")[1] + SEPARATOR + failed.encode()
        name = f"scram-{failed[0]}"
        yield "sasl_client", name, bytes([clients.index("scram-256")]) + answers
    refusal = b'{"status":"invalid_token"}'
    yield "sasl_client", "refused", bytes([clients.index("oauthbearer")]) + refusal
    bad = {
        "expired": web_token(exp=1),
        "none": web_token(None, "none"),
        "public-as-secret": web_token(KEY.public_key().public_bytes_raw(), "HS256"),
        "claims": web_token(sub="", scope=["a", "a"], aud=["x"], nbf=9e9, iss="issuer"),
        "other-key": web_token(Ed25519PrivateKey.from_private_bytes(bytes(32))),
    }
    for name, token in bad.items():
        message = f"n,a=alice,\x01auth=Bearer {token}\x01\x01".encode()
        yield "sasl", f"token-{name}", bytes([real]) + message + SEPARATOR + b"\x01"
    own = b"n,,\x01auth=Bearer eyJhbGciOiJFUzI1NiJ9.e30.AA\x01a=b\x01\x01"
    yield "sasl", "token-of-any-key", bytes([any_key]) + own


def _refused(client: ClientExchange) -> list[bytes]:
    """Return the messages of a client whose proof is wrong."""
    messages: list[bytes] = []
    with suppress(AuthenticationFailed):
        converse(SERVERS["SCRAM-SHA-256"], client, lambda _, each: messages.append(each) or each)
    return messages[::2]


WAIT: Final = 3
"""The first byte of an input of `authentication`: the client waits for answers, then closes."""


def _request(module: Any, version: int, message: Any) -> bytes:
    return _framed(encode_request_header(module.API.key, version, 7, "c"), encode(message, version))


def _framed(head: bytes, body: bytes) -> bytes:
    return (len(head) + len(body)).to_bytes(4, "big") + head + body


def _authentication_seeds() -> Iterator[Seed]:
    told = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    hello = _request(api_versions, 3, told)
    logins = {}
    for client, (server, _) in CLIENTS.items():
        chosen = SaslHandshakeRequest(mechanism=server)
        messages = conversation(client)[::2]
        wrapped = [SaslAuthenticateRequest(auth_bytes=each) for each in messages]
        logins[client] = _request(sasl_handshake, 1, chosen) + b"".join(
            _request(sasl_authenticate, version, each)
            for version, each in zip((2, 1, 0), wrapped, strict=False)
        )
        bare = _request(sasl_handshake, 0, chosen)
        bare += b"".join(len(each).to_bytes(4, "big") + each for each in messages)
        yield "authentication", client, bytes([WAIT, 255]) + hello + logins[client] + hello
        yield "authentication", f"{client}-v0", bytes([WAIT, 255]) + bare + hello
    again = hello + logins["plain"] + hello + logins["plain"] + hello * 30
    yield "authentication", "again", bytes([WAIT | 4 | 8, 3]) + again
    yield (
        "authentication",
        "other-principal",
        bytes([8, 255]) + logins["plain"] + logins["token-256"],
    )
    newer = _framed(encode_request_header(api_versions.API.key, 99, 7, "c"), b"\1\2")
    yield "authentication", "unknown-version", bytes([0, 255]) + newer + hello
    other = _request(sasl_handshake, 1, SaslHandshakeRequest(mechanism="GSSAPI"))
    yield "authentication", "unknown-mechanism", bytes([0, 255]) + other
    yield "authentication", "unasked", bytes([2, 255]) + logins["plain"][len(other) :]
    yield (
        "authentication",
        "metadata",
        bytes([1, 255]) + _framed(encode_request_header(3, 1, 7, "c"), b"\0\0\0\0"),
    )


def _login_seeds() -> Iterator[Seed]:
    """Yield the answers of brokers."""
    apis = (api_versions, sasl_handshake, sasl_authenticate)
    served = [
        ApiVersion(api_key=each.API.key, min_version=0, max_version=each.API.versions[-1])
        for each in apis
    ]
    versions = ApiVersionsResponse(api_keys=served)
    chosen = SaslHandshakeResponse(mechanisms=["PLAIN"])
    lives = SaslAuthenticateResponse(auth_bytes=b"", session_lifetime_ms=60_000)
    for_ever = SaslAuthenticateResponse(auth_bytes=b"")
    refused = SaslAuthenticateResponse(error_code=58, error_message="no", auth_bytes=b"")
    impossible = SaslHandshakeResponse(error_code=33, mechanisms=["OTHER"])
    old = ApiVersionsResponse(error_code=35, api_keys=served)
    scram = SaslAuthenticateResponse(auth_bytes=conversation("scram-256")[1])
    login = [versions, chosen, for_ever, versions, versions, versions]
    renewed = [versions, chosen, lives, versions, versions, chosen, for_ever, versions]
    stories: dict[str, list[Any]] = {
        "plain": login,
        "renewed": renewed,
        "refused": [versions, chosen, refused],
        "not-renewed": [*renewed[:-2], refused],
        "other-mechanism": [versions, impossible],
        "old": [old, *login],
    }
    for name, answers in stories.items():
        yield "login", name, bytes([1, 255]) + _answers(answers)
        yield "login", f"{name}-silent", bytes([0, 1]) + _answers(answers)
    yield "login", "scram", bytes([3, 255]) + _answers([versions, chosen, scram])


def _answers(responses: list[Any]) -> bytes:
    frames = []
    for number, response in enumerate(responses):
        found = next(api(key) for key in APIS if isinstance(response, api(key).response))
        version = found.versions[-1]
        if getattr(response, "error_code", 0) == 35:
            version = 0
        head = encode_response_header(found.key, version, number)
        frames.append(_framed(head, encode(response, version)))
    return b"".join(frames)


HONEST: Final = 8
"""Added to the first byte of an input of `tls`: the honest client completes its handshake."""


def _tls_seeds() -> Iterator[Seed]:
    """Yield flights of clients, damage to them, and certificates: other ones in each run."""
    for kind, name in enumerate(("1.2", "1.2-certificate", "1.3", "1.3-certificate")):
        first, second = recorded_flights(kind)
        yield "tls", f"hello-{name}", bytes([0, 255]) + first
        yield "tls", f"both-{name}", bytes([0x40, 255]) + first + second
        yield "tls", f"second-{name}", bytes([kind | 4, 255]) + second
        yield "tls", f"damaged-{name}", bytes([kind | 4 | 0x10, 255, 0, 9, 0, 1])
        yield "tls", f"cut-{name}", bytes([kind | 4 | 0x50, 255, 0, 50])
        versions = _request(api_versions, 0, ApiVersionsRequest())
        yield "tls", f"request-{name}", bytes([kind | 0x20, 255]) + versions
        alert = bytes.fromhex("15030300020100")
        yield "tls", f"alert-{name}", bytes([kind | HONEST, 255]) + alert
    for name, record in {
        "http": b"GET / HTTP/1.1\r\n\r\n",
        "plain": versions,
        "alert": bytes.fromhex("15030100020228"),
        "heartbeat": bytes.fromhex("1803030003014000"),
        "empty": bytes.fromhex("1603010000"),
        "large": bytes.fromhex("160301ffff0100ffff0303"),
        "ssl2": bytes.fromhex("802e0100020015000000100100800300800700c0"),
    }.items():
        yield "tls", name, bytes([0x40, 255]) + record
    names = x509.Name.from_rfc4514_string("CN=alice+UID=a,OU=b\\,c,O=d,C=DE")
    for name, subject in (("name", "alice"), ("names", names)):
        der = Authority().issue(subject).certificate.public_bytes(Encoding.DER)
        yield "certificate", name, der


def main() -> None:
    for target, name, data in seeds():
        path = CORPUS / target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


if __name__ == "__main__":
    main()
