"""Clients that do nothing but come in, in a process of their own: python benchmarks/logins.py.

    tls    PORT COUNT THREADS AUTHORITY   handshake of TLS 1.3 without resumption, ApiVersions
    scram  PORT COUNT THREADS SALTED      SASL SCRAM-SHA-512 of alice; SALTED is her salted password
    oauth  PORT COUNT THREADS TOKENS      SASL OAUTHBEARER, each login with another line of the file

Each prints "ready", comes in COUNT times after a line on its standard input, and prints "done".
"""

import hashlib
import hmac
import secrets
import socket
import ssl
import struct
import sys
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path

_SIZE = struct.Struct(">i")
_CLIENT_ID = b"\0\1b"
_API_VERSIONS = struct.pack(">hhi", 18, 0, 1) + _CLIENT_ID


def exchange(link: socket.socket, request: bytes) -> bytes:
    link.sendall(_SIZE.pack(len(request)) + request)
    size = _SIZE.unpack(_read(link, 4))[0]
    return _read(link, size)


def _read(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = link.recv(size - len(data))
        if not more:
            raise SystemExit("the broker closed the connection")
        data += more
    return data


def connect(port: int) -> socket.socket:
    link = socket.create_connection(("127.0.0.1", port), 30)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link


def tls(port: int, authority: str) -> Callable[[], None]:
    context = ssl.create_default_context(cafile=authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_3

    def come_in() -> None:
        with context.wrap_socket(connect(port), server_hostname="localhost") as link:
            exchange(link, _API_VERSIONS)

    return come_in


def handshake(link: socket.socket, mechanism: str) -> None:
    """Choose a mechanism by SaslHandshake v1."""
    name = mechanism.encode()
    answer = exchange(
        link,
        struct.pack(">hhi", 17, 1, 1) + _CLIENT_ID + struct.pack(">h", len(name)) + name,
    )
    if answer[4:6] != b"\0\0":
        raise SystemExit(f"SaslHandshake: {answer!r}")


def authenticate(link: socket.socket, message: bytes) -> bytes:
    """Send a message of the mechanism by SaslAuthenticate v1, and return the broker's."""
    answer = exchange(
        link, struct.pack(">hhi", 36, 1, 1) + _CLIENT_ID + _SIZE.pack(len(message)) + message
    )
    error, size = struct.unpack_from(">hh", answer, 4)
    if error:
        raise SystemExit(f"SaslAuthenticate: {answer!r}")
    at = 8 + max(size, 0)
    length = _SIZE.unpack_from(answer, at)[0]
    return answer[at + 4 : at + 4 + length]


def scram(port: int, salted: str) -> Callable[[], None]:
    client_key = hmac.digest(bytes.fromhex(salted), b"Client Key", "sha512")
    stored_key = hashlib.sha512(client_key).digest()

    def come_in() -> None:
        bare = b"n=alice,r=" + secrets.token_hex(12).encode()
        with connect(port) as link:
            handshake(link, "SCRAM-SHA-512")
            first = authenticate(link, b"n,," + bare)
            without_proof = b"c=biws," + first.partition(b",")[0]
            signed = hmac.digest(stored_key, b",".join((bare, first, without_proof)), "sha512")
            proof = bytes(a ^ b for a, b in zip(client_key, signed, strict=True))
            authenticate(link, without_proof + b",p=" + b64encode(proof))

    return come_in


def oauth(port: int, path: str) -> Callable[[], None]:
    tokens = Path(path).read_text().split()
    each: Iterator[str] = iter(tokens)

    def come_in() -> None:
        with connect(port) as link:
            handshake(link, "OAUTHBEARER")
            authenticate(link, b"n,,\1auth=Bearer " + next(each).encode() + b"\1\1")

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
