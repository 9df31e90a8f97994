"""A schema registry in a thread: Confluent's API over HTTP, as far as its clients use it.

`REGISTRY_URL` in the environment takes another registry in its place; tests of what only this one
can do are skipped then. `python -m tests.support.apicurio` runs them with Apicurio.
"""

import base64
import json
import os
import re
import ssl
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

URL = "REGISTRY_URL"
Found = tuple[int, Any]

_WIDER = {
    *(("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double")),
    *(("float", "double"), ("string", "bytes"), ("bytes", "string")),
}
"""Types that are read as another one."""


class FakeRegistry:
    """The schemas of a registry, and the requests that it has got."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[str] = []
        self.login: str | None = None
        """USER:PASSWORD that each request needs."""
        self.away = 0
        """Requests that are answered with 503 from now on."""
        self._schemas: list[dict[str, Any]] = []
        self._subjects: dict[str, list[int]] = {}
        self._levels: dict[str, str] = {}

    def answer(self, method: str, path: str, authorization: str | None, body: Any) -> Found:
        self.asked.append(f"{method} {path}")
        if self.away > 0:
            self.away -= 1
            return 503, {"error_code": 50301, "message": "away"}
        if self.login is not None:
            wanted = f"Basic {base64.b64encode(self.login.encode()).decode()}"
            if authorization != wanted:
                return 401, {"error_code": 401, "message": "Unauthorized"}
        parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
        match method, parts:
            case "GET", ["schemas", "ids", number]:
                if 0 < int(number) <= len(self._schemas):
                    return 200, self._schemas[int(number) - 1]
                return _missing(40403, "Schema not found")
            case "GET", ["schemas", "guids", guid]:
                for number, schema in enumerate(self._schemas, 1):
                    if _guid(schema) == guid:
                        return 200, {"id": number, **schema}
                return _missing(40403, "Schema not found")
            case "GET", ["subjects"]:
                return 200, sorted(self._subjects)
            case "GET", ["subjects", subject, "versions"]:
                if subject not in self._subjects:
                    return _missing(40401, f"Subject '{subject}' not found.")
                return 200, list(range(1, len(self._subjects[subject]) + 1))
            case "GET", ["subjects", subject, "versions", version]:
                return self._version(subject, version)
            case "POST", ["subjects", subject, "versions"]:
                return self._register(subject, body)
            case "POST", ["subjects", subject]:
                return self._find(subject, body)
            case "POST", ["compatibility", "subjects", subject, "versions", _]:
                if subject not in self._subjects:
                    return _missing(40401, f"Subject '{subject}' not found.")
                reasons = self._refusals(subject, body)
                return 200, {"is_compatible": not reasons, "messages": reasons}
            case "PUT", ["config", *subject]:
                self._levels["/".join(subject)] = body["compatibility"]
                return 200, body
            case "GET", ["config", *subject]:
                return 200, {"compatibilityLevel": self._level("/".join(subject))}
        return _missing(404, "HTTP 404 Not Found")

    def _level(self, subject: str) -> str:
        return self._levels.get(subject, self._levels.get("", "BACKWARD"))

    def _version(self, subject: str, version: str) -> Found:
        if not (numbers := self._subjects.get(subject)):
            return _missing(40401, f"Subject '{subject}' not found.")
        index = len(numbers) if version in ("latest", "-1") else int(version)
        if not 0 < index <= len(numbers):
            return _missing(40402, f"Version {version} not found.")
        number = numbers[index - 1]
        return 200, self._found(subject, index, number)

    def _found(self, subject: str, version: int, number: int) -> dict[str, Any]:
        schema = self._schemas[number - 1]
        found = {"subject": subject, "version": version, "id": number, "guid": _guid(schema)}
        return {**found, **schema}

    def _find(self, subject: str, body: Any) -> Found:
        for index, number in enumerate(self._subjects.get(subject, ())):
            if self._schemas[number - 1] == _stored(body):
                return 200, self._found(subject, index + 1, number)
        return _missing(40403, "Schema not found")

    def _register(self, subject: str, body: Any) -> Found:
        schema = _stored(body)
        if schema.get("schemaType", "AVRO") != "PROTOBUF":
            try:
                json.loads(schema["schema"])
            except ValueError:
                return 422, {"error_code": 42201, "message": "Invalid schema"}
        numbers = self._subjects.get(subject, [])
        if schema not in [self._schemas[each - 1] for each in numbers]:
            if reasons := self._refusals(subject, body):
                return 409, {"error_code": 409, "message": "; ".join(reasons)}
            if schema not in self._schemas:
                self._schemas.append(schema)
            self._subjects[subject] = [*numbers, self._schemas.index(schema) + 1]
        return 200, {"id": self._schemas.index(schema) + 1, "guid": _guid(schema)}

    def _refusals(self, subject: str, body: Any) -> list[str]:
        """Return why a reader with a new schema of Avro could not read the latest one."""
        numbers = self._subjects.get(subject)
        if not numbers or self._level(subject) == "NONE":
            return []
        latest = self._schemas[numbers[-1] - 1]
        if "schemaType" in latest or "schemaType" in body:
            return []
        reader, writer = json.loads(body["schema"]), json.loads(latest["schema"])
        written = {each["name"]: each["type"] for each in writer["fields"]}
        reasons = []
        for each in reader["fields"]:
            name, kind = each["name"], each["type"]
            if name not in written and "default" not in each:
                reasons.append(f"READER_FIELD_MISSING_DEFAULT_VALUE: {name}")
            elif name in written and not _reads(kind, written[name]):
                reasons.append(f"TYPE_MISMATCH: {name}")
        return reasons


def _reads(reader: Any, writer: Any) -> bool:
    if isinstance(reader, list) or isinstance(writer, list):
        own = reader if isinstance(reader, list) else [reader]
        others = writer if isinstance(writer, list) else [writer]
        return all(any(_reads(each, other) for each in own) for other in others)
    if isinstance(reader, str) and isinstance(writer, str):
        return reader == writer or (writer, reader) in _WIDER
    return isinstance(reader, dict) == isinstance(writer, dict)


def _stored(body: Any) -> dict[str, Any]:
    wanted = {name: body.get(name) for name in ("schema", "schemaType", "references")}
    return {name: each for name, each in wanted.items() if each and each != "AVRO"}


def _guid(schema: dict[str, Any]) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(schema)))


def _missing(code: int, text: str) -> Found:
    return 404, {"error_code": code, "message": text}


@contextmanager
def fake_registry(context: ssl.SSLContext | None = None) -> Iterator[FakeRegistry]:
    """Serve a registry, with TLS if a context is given."""
    registry = FakeRegistry()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            text = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = json.loads(text) if text else None
            given = self.headers.get("Authorization")
            code, found = registry.answer(self.command, self.path, given, body)
            data = json.dumps(found).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = answer

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Ignore clients that refuse the certificate."""

    with Server(("127.0.0.1", 0), Handler) as server:
        if context is not None:
            server.socket = context.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        scheme, host = ("http", "127.0.0.1") if context is None else ("https", "localhost")
        registry.url = f"{scheme}://{host}:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def any_registry() -> Iterator[str]:
    """Yield the address of the registry that `REGISTRY_URL` names, or of a fake one."""
    if url := os.environ.get(URL):
        yield url
        return
    with fake_registry() as registry:
        yield registry.url


only_fake = pytest.mark.skipif(URL in os.environ, reason="needs levers of the fake registry")


def plain(name: str) -> str:
    """Return a name for subjects and topics."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
