"""Clients that do nothing but come in, in a process of their own: `python -m benchmarks.logins`.

    tls    PORT COUNT THREADS AUTHORITY   handshake of TLS 1.3 without resumption, ApiVersions
    scram  PORT COUNT THREADS SALTED      SASL SCRAM-SHA-512 of alice; SALTED is her salted password
    oauth  PORT COUNT THREADS TOKENS      SASL OAUTHBEARER, each login with another line of the file

Each prints "ready", comes in COUNT times after a line on its standard input, and prints "done".
"""

import hashlib
import hmac
import secrets
import ssl
import struct
import sys
import threading
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from pathlib import Path

from barnabas.protocol.messages import api_versions, sasl_handshake
from benchmarks import raw

_SIZE = struct.Struct(">i")
_AUTHENTICATE = struct.pack(">hhi", 36, 1, 1) + b"\0\1b"
"""The header of SaslAuthenticate v1."""


def tls(port: int, authority: str) -> Callable[[], None]:
    context = ssl.create_default_context(cafile=authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    secured = partial(context.wrap_socket, server_hostname="localhost")
    request = raw.frame(api_versions.API, 0, {})

    def come_in() -> None:
        with raw.Client(port, secured) as link:
            link.exchange(request)

    return come_in


def handshake(mechanism: str) -> Callable[[raw.Client], None]:
    """Return the function that chooses a mechanism by SaslHandshake v1."""
    request = raw.frame(sasl_handshake.API, 1, {"mechanism": mechanism})

    def choose(link: raw.Client) -> None:
        answer = link.exchange(request)
        if answer[4:6] != b"\0\0":
            raise SystemExit(f"SaslHandshake: {answer!r}")

    return choose


def authenticate(link: raw.Client, message: bytes) -> bytes:
    """Send a message of the mechanism by SaslAuthenticate v1, and return the broker's."""
    request = _AUTHENTICATE + _SIZE.pack(len(message)) + message
    answer = link.exchange(_SIZE.pack(len(request)) + request)
    error, size = struct.unpack_from(">hh", answer, 4)
    if error:
        raise SystemExit(f"SaslAuthenticate: {answer!r}")
    at = 8 + max(size, 0)
    length = _SIZE.unpack_from(answer, at)[0]
    return answer[at + 4 : at + 4 + length]


def scram(port: int, salted: str) -> Callable[[], None]:
    client_key = hmac.digest(bytes.fromhex(salted), b"Client Key", "sha512")
    stored_key = hashlib.sha512(client_key).digest()
    choose = handshake("SCRAM-SHA-512")

    def come_in() -> None:
        bare = b"n=alice,r=" + secrets.token_hex(12).encode()
        with raw.Client(port) as link:
            choose(link)
            first = authenticate(link, b"n,," + bare)
            without_proof = b"c=biws," + first.partition(b",")[0]
            signed = hmac.digest(stored_key, b",".join((bare, first, without_proof)), "sha512")
            proof = bytes(a ^ b for a, b in zip(client_key, signed, strict=True))
            authenticate(link, without_proof + b",p=" + b64encode(proof))

    return come_in


def oauth(port: int, path: str) -> Callable[[], None]:
    tokens = iter(Path(path).read_text().split())
    choose = handshake("OAUTHBEARER")

    def come_in() -> None:
        with raw.Client(port) as link:
            choose(link)
            authenticate(link, b"n,,\1auth=Bearer " + next(tokens).encode() + b"\1\1")

    return come_in


def main() -> None:
    kind, port, count, threads, given = sys.argv[1:]
    come_in = {"tls": tls, "scram": scram, "oauth": oauth}[kind](int(port), given)
    share = int(count) // int(threads)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(share):
                come_in()
        except BaseException as error:
            failed.append(error)

    running = [threading.Thread(target=work) for _ in range(int(threads))]
    print("ready", flush=True)
    sys.stdin.readline()
    for each in running:
        each.start()
    for each in running:
        each.join()
    if failed:
        raise failed[0]
    print("done", flush=True)


if __name__ == "__main__":
    main()
