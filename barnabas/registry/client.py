"""A client of Confluent's schema registry, and of those that speak its API.

It blocks. It remembers the schemas that the registry has returned, because the schema of an id
never changes. It repeats a request to a registry that does not answer, with longer and longer
pauses, until `retry.timeout.ms` is over.
"""

import http.client
import json
import ssl
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlsplit
from uuid import UUID

from barnabas.protocol.backoff import Backoff
from barnabas.registry.errors import (
    BadSchema,
    Incompatible,
    RegistryAway,
    RegistryError,
    UnknownSchema,
)
from barnabas.registry.settings import RegistrySettings

AVRO: Final = "AVRO"
PROTOBUF: Final = "PROTOBUF"
JSON_SCHEMA: Final = "JSON"
LATEST: Final = "latest"

_MOST_SCHEMAS: Final = 1000
"""Schemas that are remembered, as texts and parsed."""
_UNKNOWN_S: Final = 1.0
"""The time after which an id that the registry did not have is asked for again."""
_REQUEST_S: Final = 10.0
_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0
_LARGEST: Final = 16 << 20
_MOST_REFERENCES: Final = 1000
_RETRIED: Final = frozenset({408, 429, 500, 502, 503, 504})
_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA = 40401, 40402, 40403
_FIELDS: Final[Mapping[str, type]] = {"schema": str, "id": int, "version": int}
"""The types of fields that responses must have."""
_TYPE: Final = "application/vnd.schemaregistry.v1+json"
T = TypeVar("T")


@dataclass(frozen=True)
class Reference:
    """A reference of a schema: the name that its text has, and the subject and version meant."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class SchemaText:
    """A schema as the registry has it."""

    kind: str
    """AVRO, PROTOBUF or JSON."""
    text: str
    references: tuple[Reference, ...] = ()
    resolved: tuple[tuple[str, str], ...] = ()
    """Name and text of the referenced schemas; each comes after its own references."""


@dataclass(frozen=True)
class Version:
    """A version of a subject."""

    subject: str
    version: int
    id: int
    schema: SchemaText


class SchemaRegistry:
    """The client of a registry; one thread uses it at a time."""

    def __init__(self, settings: RegistrySettings) -> None:
        """Connect later: each request opens a connection, because schemas are remembered."""
        self.settings: Final = settings
        self._schemas: OrderedDict[int | UUID, SchemaText] = OrderedDict()
        self._unknown: OrderedDict[int | UUID, float] = OrderedDict()
        self._turn = 0

    def schema(self, number: int | UUID) -> SchemaText:
        """Return the schema of an id or GUID; raises UnknownSchema and RegistryError."""
        if (known := self._schemas.get(number)) is not None:
            self._schemas.move_to_end(number)
            return known
        if time.monotonic() < self._unknown.get(number, 0.0):
            raise UnknownSchema("the registry has no such schema")
        try:
            kind = "guids" if isinstance(number, UUID) else "ids"
            found = self._ask("GET", f"/schemas/{kind}/{number}", needs=("schema",))
        except UnknownSchema:
            remember(self._unknown, number, time.monotonic() + _UNKNOWN_S)
            raise
        schema = self._resolved(found)
        remember(self._schemas, number, schema)
        return schema

    def version(self, subject: str, version: int | str = LATEST) -> Version:
        """Return a version of a subject; raises UnknownSchema and RegistryError."""
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
        found = self._ask("GET", path, needs=("version", "id", "schema"))
        return Version(subject, found["version"], found["id"], self._resolved(found))

    def with_references(self, kind: str, text: str, references: Sequence[Reference]) -> SchemaText:
        """Return a schema that is not registered yet."""
        resolved = self._resolve(references)
        return SchemaText(kind, text, tuple(references), resolved)

    def register(self, subject: str, schema: SchemaText) -> int:
        """Return the id of a schema in a subject, which is registered if it is new there.

        Raises Incompatible, BadSchema and RegistryError.
        """
        path = f"/subjects/{quote(subject, safe='')}/versions"
        number: int = self._ask("POST", path, _body(schema), subject, needs=("id",))["id"]
        return number

    def check(self, subject: str, schema: SchemaText) -> None:
        """Raise Incompatible if the subject would refuse a schema; also BadSchema."""
        path = f"/compatibility/subjects/{quote(subject, safe='')}/versions/latest?verbose=true"
        try:
            found = self._ask("POST", path, _body(schema), subject)
        except UnknownSchema:
            # The subject is new.
            return
        if not found.get("is_compatible", True):
            reasons = found.get("messages") or [str(found.get("reason", ""))]
            raise Incompatible(_refusal(subject, "; ".join(reasons)))

    # -- references -----------------------------------------------------------------------------

    def _resolved(self, found: Mapping[str, Any]) -> SchemaText:
        references = tuple(
            Reference(each["name"], each["subject"], each["version"])
            for each in found.get("references") or ()
        )
        kind = found.get("schemaType") or AVRO
        return SchemaText(kind, found["schema"], references, self._resolve(references))

    def _resolve(self, references: Sequence[Reference]) -> tuple[tuple[str, str], ...]:
        """Return name and text of the schemas referred to, the deepest first."""
        texts: dict[str, str] = {}
        open_names: set[str] = set()

        def add(reference: Reference) -> None:
            if reference.name in texts:
                return
            if reference.name in open_names or len(open_names) > _MOST_REFERENCES:
                raise BadSchema(f"reference {reference.name!r} refers to itself")
            open_names.add(reference.name)
            subject = quote(reference.subject, safe="")
            path = f"/subjects/{subject}/versions/{reference.version}"
            found = self._ask("GET", path, needs=("schema",))
            for each in found.get("references") or ():
                add(Reference(each["name"], each["subject"], each["version"]))
            texts[reference.name] = found["schema"]

        for each in references:
            add(each)
        return tuple(texts.items())

    # -- HTTP -----------------------------------------------------------------------------------

    def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        subject: str = "",
        needs: Sequence[str] = (),
    ) -> Any:
        """Return the response, as soon as the registry gives one; it has the fields `needs`."""
        end = time.monotonic() + self.settings.retry_s
        backoff = Backoff(_PAUSE_S, _LONGEST_PAUSE_S)
        while True:
            url = self.settings.urls[self._turn % len(self.settings.urls)]
            try:
                status, data = self._once(url, method, path, body)
                if status not in _RETRIED:
                    return _answer(url, status, data, subject, needs)
                why = _why(status, _parsed(data))
            except ssl.SSLCertVerificationError as error:
                raise RegistryError(f"registry {url}: {error.verify_message}") from error
            except (OSError, http.client.HTTPException) as error:
                why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            self._turn += 1
            if time.monotonic() + backoff.wait > end:
                text = f"registry {url} does not answer ({why})"
                raise RegistryAway(f"{text} for {self.settings.retry_s:g} s")
            time.sleep(backoff.failed())

    def _once(
        self, url: str, method: str, path: str, body: Mapping[str, Any] | None
    ) -> tuple[int, bytes]:
        parts = urlsplit(url)
        assert parts.hostname is not None
        timeout = min(_REQUEST_S, max(self.settings.retry_s, _PAUSE_S))
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            connection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=timeout, context=self._context
            )
        else:
            connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
        headers = {"Accept": f"{_TYPE}, application/json"}
        if self.settings.authorization is not None:
            headers["Authorization"] = self.settings.authorization
        if body is not None:
            headers["Content-Type"] = _TYPE
        text = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, parts.path + path, text, headers)
            answer = connection.getresponse()
            return answer.status, answer.read(_LARGEST)
        finally:
            connection.close()

    @cached_property
    def _context(self) -> ssl.SSLContext:
        return self.settings.context


def _body(schema: SchemaText) -> Mapping[str, Any]:
    body: dict[str, Any] = {"schema": schema.text}
    if schema.kind != AVRO:
        body["schemaType"] = schema.kind
    if schema.references:
        body["references"] = [
            {"name": each.name, "subject": each.subject, "version": each.version}
            for each in schema.references
        ]
    return body


def _answer(url: str, status: int, data: bytes, subject: str, needs: Sequence[str]) -> Any:
    """Return the JSON of a response; raises its error."""
    found = _parsed(data)
    if status == 200 and found and all(type(found.get(name)) is _FIELDS[name] for name in needs):
        return found
    why = _why(status, found)
    match status:
        case 401 | 403:
            raise RegistryError(f"registry {url} refuses the login ({status})")
        case 404 if found.get("error_code") in (_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA):
            # Any other 404 may come from a wrong address, which makes no record bad.
            raise UnknownSchema(why)
        case 409:
            raise Incompatible(_refusal(subject, why))
        case 422:
            raise BadSchema(f"registry {url} refuses the schema of {subject}: {why}")
    raise RegistryError(f"{url} does not answer as a schema registry does: {why}")


def _parsed(data: bytes) -> Mapping[str, Any]:
    """Return the object of a response; an empty one if it is not an object."""
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _why(status: int, error: Mapping[str, Any]) -> str:
    return f"{error['message']} ({status})" if error.get("message") else f"status {status}"


def _refusal(subject: str, why: str) -> str:
    return f"the schema is incompatible with subject {subject}: {why or 'no reason given'}"


def remember(cache: OrderedDict[int | UUID, T], number: int | UUID, value: T) -> None:
    """Add what belongs to a schema id; drop the entry that was not used for the longest time."""
    cache[number] = value
    while len(cache) > _MOST_SCHEMAS:
        cache.popitem(last=False)
