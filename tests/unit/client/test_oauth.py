"""Tokens of a client from a token endpoint, over HTTPS to a server of this process."""

import asyncio
import base64
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from barnabas.client import oauth
from barnabas.client.connection import AuthenticationError
from barnabas.client.sasl import login_with
from barnabas.config.key import ConfigError
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import sasl_authenticate, sasl_handshake
from barnabas.protocol.schema import Api
from tests.support.certificates import Authority
from tests.support.web_server import Asked, WebServer, web_server

BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
SECRET = "s3cr3t/+"


def part(fields: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")


def token(number: int = 0, *, lasts_s: float = 600) -> str:
    now = time.time()
    return f"{part({})}.{part({'exp': now + lasts_s, 'jti': number})}.sig"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WebServer]:
    with web_server(tmp_path) as running:
        gives(running)
        yield running


def gives(server: WebServer, **options: Any) -> None:
    """Let the server give tokens, each with a number of its own."""

    def answer(_: Asked) -> tuple[int, bytes]:
        return 200, json.dumps({"access_token": token(len(server.asked), **options)}).encode()

    server.answer = answer


def properties(server: WebServer, **more: str) -> dict[str, str]:
    own = {
        "sasl.login.retry.backoff.max.ms": "100",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": server.url,
        "sasl.jaas.config": (
            f'{BEARER} clientId="me" clientSecret="{SECRET}" scope="a b" {server.trust};'
        ),
    }
    return own | {name.replace("_", "."): text for name, text in more.items()}


class Listener:
    """The SASL of a listener, which accepts each token or none."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.refuses = False

    async def ask(self, api: Api, request: Any) -> Any:
        if api is sasl_handshake.API:
            return sasl_handshake.SaslHandshakeResponse(mechanisms=["OAUTHBEARER"])
        self.seen.append(bytes(request.auth_bytes))
        if self.refuses:
            return sasl_authenticate.SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="not you"
            )
        return sasl_authenticate.SaslAuthenticateResponse(auth_bytes=b"")


async def test_endpoint_is_asked_with_the_credentials(server: WebServer) -> None:
    listener = Listener()
    await login_with(properties(server))(listener.ask)
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("POST", "/path?query")
    credentials = base64.b64encode(f"me:{SECRET}".encode()).decode()
    assert asked.headers["Authorization"] == f"Basic {credentials}"
    assert asked.headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert asked.body == b"grant_type=client_credentials&scope=a+b"
    assert re.fullmatch(rb"n,,\x01auth=Bearer [\w.-]+\x01\x01", listener.seen[0])


async def test_keys_of_librdkafka_and_of_kafka_name_the_account(server: WebServer) -> None:
    listener = Listener()
    both: dict[str, str] = {
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": server.url,
        "sasl.oauthbearer.scope": "c",
        "https.ca.location": server.stores.trust()["ssl.truststore.location"],
        "sasl.oauthbearer.extensions": "cluster=one,pool=two",
    }
    kafka = "sasl.oauthbearer.client.credentials.client"
    for prefix in ("sasl.oauthbearer.client", kafka):
        account = {f"{prefix}.id": "me", f"{prefix}.secret": SECRET}
        await login_with(both | account)(listener.ask)
    assert server.asked[0] == server.asked[1]
    assert server.asked[0].body.endswith(b"&scope=c")
    assert listener.seen[0].endswith(b"\x01cluster=one\x01pool=two\x01\x01")


async def test_logins_share_a_token_and_a_fetch(server: WebServer) -> None:
    listener, login = Listener(), login_with(properties(server))
    await asyncio.gather(*(login(listener.ask) for _ in range(5)))
    await login(listener.ask)
    assert len(server.asked) == 1
    assert len(set(listener.seen)) == 1


@pytest.mark.parametrize("lasts_s", [0, -5])
async def test_token_that_is_about_to_end_is_replaced(server: WebServer, lasts_s: int) -> None:
    gives(server, lasts_s=lasts_s)
    listener, login = Listener(), login_with(properties(server))
    await login(listener.ask)
    await login(listener.ask)
    assert len(server.asked) == len(set(listener.seen)) == 2


async def test_token_that_a_broker_refuses_is_not_used_again(server: WebServer) -> None:
    listener, login = Listener(), login_with(properties(server))
    listener.refuses = True
    with pytest.raises(AuthenticationError, match="not you"):
        await login(listener.ask)
    listener.refuses = False
    await login(listener.ask)
    assert len(set(listener.seen)) == 2


async def test_request_that_fails_is_repeated(server: WebServer) -> None:
    good = server.answer

    def answer(asked: Asked) -> tuple[int, bytes]:
        return (503, b"") if len(server.asked) < 3 else good(asked)

    server.answer = answer
    listener = Listener()
    await login_with(properties(server, sasl_login_retry_backoff_ms="1"))(listener.ask)
    assert len(server.asked) == 3


@pytest.mark.parametrize("code", [302, 408, 500])
async def test_endpoint_of_no_use_is_given_up_and_may_be_tried_again(
    server: WebServer, code: int
) -> None:
    server.answer = lambda _: (code, b"")
    keys = {"sasl_login_retry_backoff_ms": "1", "sasl_login_retry_backoff_max_ms": "400"}
    with pytest.raises(ConnectionError, match=f"no token of localhost: localhost answers {code}"):
        await login_with(properties(server, **keys))(Listener().ask)
    assert len(server.asked) > 1


@pytest.mark.parametrize(
    ("code", "body", "told"),
    [
        (400, b'{"error": "invalid_scope", "error_description": "no"}', ": 'invalid_scope - no'"),
        (401, b"<html>", ""),
        (403, b"[" * 100_000, ""),
    ],
)
async def test_refusal_is_final_and_explained_without_secrets(
    server: WebServer, code: int, body: bytes, told: str
) -> None:
    server.answer = lambda _: (code, body)
    with pytest.raises(AuthenticationError) as caught:
        await login_with(properties(server))(Listener().ask)
    assert isinstance(caught.value, KafkaError)
    assert str(caught.value).endswith(f"no token: localhost answers {code}{told}")
    assert "s3cr3t" not in repr(caught.value)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b'{"access_token": 1}', b'{"access_token": ""}', b'{"access_token": "a\\u0001b"}'],
)
async def test_answer_without_a_token_is_refused(server: WebServer, body: bytes) -> None:
    server.answer = lambda _: (200, body)
    with pytest.raises(AuthenticationError, match=r"without an access_token|gave no token"):
        await login_with(properties(server))(Listener().ask)


async def test_answer_without_end_is_not_read(server: WebServer) -> None:
    server.answer = lambda _: (200, bytes(oauth.MAX_ANSWER + 1))
    keys = {"sasl_login_retry_backoff_max_ms": "0"}
    with pytest.raises(ConnectionError, match="answers more than 1048576 bytes"):
        await login_with(properties(server, **keys))(Listener().ask)


@pytest.mark.parametrize("beginning", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_endpoint_that_drips_does_not_hold_a_thread(beginning: bytes) -> None:
    """Each byte comes before the endpoint counts as silent."""
    over = threading.Event()

    def drip(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection, suppress(OSError):
            connection.sendall(beginning)
            for _ in range(300):
                connection.sendall(b"x")
                if over.wait(0.01):
                    break

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=drip, args=(listening,))
        thread.start()
        url = urlsplit(f"http://127.0.0.1:{listening.getsockname()[1]}/")
        with pytest.raises(OSError, match=r"127\.0\.0\.1 does not answer in time"):
            oauth.ask(url, {}, {}, oauth.Timeouts(0.1, 0.2))
        over.set()
        thread.join()


async def test_endpoint_of_another_authority_gets_no_secret(
    server: WebServer, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    keys = {"sasl_login_retry_backoff_max_ms": "0"}
    with web_server(tmp_path / "other") as other:
        keys["sasl_oauthbearer_token_endpoint_url"] = other.url
        with pytest.raises(ConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
            await login_with(properties(server, **keys))(Listener().ask)
        assert not other.asked


async def test_authority_that_is_trusted_may_change(server: WebServer) -> None:
    """The file is read at each request, and a bad one is told of."""
    listener, login = Listener(), login_with(properties(server))
    listener.refuses = True
    for text, expected in (
        (Authority("other").pem, ConnectionError),
        ("", ConnectionError),
        (server.stores.authority.pem, AuthenticationError),
    ):
        server.stores.write("trust.pem", text)
        async with asyncio.timeout(30):
            with pytest.raises(expected):
                await login(listener.ask)


async def test_login_that_is_given_up_leaves_the_fetch_to_the_others(server: WebServer) -> None:
    listener, login = Listener(), login_with(properties(server))
    first, second = (asyncio.ensure_future(login(listener.ask)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert len(server.asked) == len(listener.seen) == 1


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"sasl_jaas_config": f'{BEARER} clientSecret="x";'}, r"client\.id or OAuth JAAS"),
        ({"sasl_jaas_config": f'{BEARER} clientId="x";'}, r"client\.secret or OAuth JAAS"),
        ({"sasl_oauthbearer_token_endpoint_url": "ftp://a/b"}, "address of a token endpoint"),
        ({"sasl_oauthbearer_token_endpoint_url": "https:///b"}, "address of a token endpoint"),
        ({"sasl_login_retry_backoff_ms": "x"}, "Not a number of type LONG"),
        ({"sasl_login_read_timeout_ms": "0"}, "at least 1"),
    ],
)
def test_keys_that_name_no_endpoint_are_refused(
    server: WebServer, changed: dict[str, str], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        login_with(properties(server, **changed))
    assert "s3cr3t" not in repr(caught.value)
