"""The declaration of messages: annotated classes, each covering all versions of one message.

A class lists its fields in wire order. An annotation gives the type (`types.py`), an optional
specifier gives the versions in which the field exists, its default and its tag:

    @message
    class EndTxnResponse:
        throttle_time_ms: Int32
        error_code: Int16
        producer_id: Int64 = since(5, default=-1)

A field that a version lacks is decoded as its default; encoding another value than the default in
a version without the field raises ProtocolError unless the field is `ignorable`.

Declaring is cheap, because a start and the first request of an API wait for it: annotations are
resolved, and constructors and codecs compiled, when they are first needed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple, TypeVar, cast, dataclass_transform, get_args

from barnabas.protocol.types import Wire

LAST_VERSION: Final = 32767
"""The `until` of a field that exists up to the latest version."""

FIRST_OWN_TAG: Final = 10_000
"""First tag of our own tagged fields: Kafka's tags stay far below, and other implementations skip
unknown tags (KIP-482)."""

MAX_REQUEST_ELEMENTS: Final = 100_000
"""The elements that a request may have: items of all its arrays, and tagged fields. They take far
more memory than their bytes on the wire."""

MAX_CONTROLLER_ELEMENTS: Final = 1 << 20
"""The same for a controller's message, which names every partition of a cluster, about eight
elements each."""


class _Missing:
    """The type of `MISSING`, with a repr for error messages."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()
"""No default: the constructor requires the field."""


class WireType(NamedTuple):
    """A resolved wire type: `item` is the element of an array, `struct` the class of a struct."""

    kind: str
    nullable: bool = False
    item: "WireType | None" = None
    struct: "type[Message] | None" = None


class _Specifier(NamedTuple):
    """The arguments of `field`, `since` or `tagged`."""

    first: int = 0
    last: int = LAST_VERSION
    default: Any = MISSING
    default_factory: Callable[[], Any] | None = None
    nullable: int = 0
    ignorable: bool = False
    tag: int | None = None
    secret: bool = False


class Field(NamedTuple):
    """One declared field: its versions, its wire type, and its default in other versions."""

    name: str
    type: WireType
    spec: _Specifier

    def exists(self, version: int) -> bool:
        """Return whether `version` has this field, in line or as a tagged field."""
        return self.spec.first <= version <= self.spec.last

    def nullable(self, version: int) -> bool:
        """Return whether the field may be null in `version`."""
        return self.type.nullable and version >= self.spec.nullable

    @property
    def nullable_in_tag(self) -> bool:
        """Return whether null, which is not its default, may be sent as a tagged field."""
        return self.type.nullable and self.spec.default is not None

    def default(self) -> Any:
        """Return a fresh default value; only for fields that have a default."""
        if self.spec.default_factory is not None:
            return self.spec.default_factory()
        return self.spec.default


def field(
    *,
    default: Any = MISSING,
    default_factory: Callable[[], Any] | None = None,
    until: int = LAST_VERSION,
    nullable: int = 0,
    ignorable: bool = False,
    secret: bool = False,
) -> Any:
    """Declare a field of version 0 up to `until`; it may be null since version `nullable`.

    The value of a secret field is not part of the message's repr, which may end in a log.
    """
    return _Specifier(0, until, default, default_factory, nullable, ignorable, secret=secret)


def since(
    version: int,
    *,
    default: Any = MISSING,
    default_factory: Callable[[], Any] | None = None,
    until: int = LAST_VERSION,
    nullable: int = 0,
    ignorable: bool = False,
) -> Any:
    """Declare a field that was added in `version`; older versions decode it as its default."""
    return _Specifier(version, until, default, default_factory, nullable, ignorable)


def tagged(
    tag: int,
    *,
    since: int,
    until: int = LAST_VERSION,
    default: Any = MISSING,
    default_factory: Callable[[], Any] | None = None,
    ignorable: bool = False,
) -> Any:
    """Declare a tagged field (KIP-482): sent only if its value differs from the default."""
    return _Specifier(since, until, default, default_factory, 0, ignorable, tag)


_PLAIN = _Specifier()


class Message:
    """The base of all declared structs: slotted, mutable, compared by value, built with
    keywords."""

    __slots__ = ()
    __hash__: ClassVar[None]  # type: ignore[assignment]
    _specifiers: ClassVar[dict[str, _Specifier]]
    _fields: ClassVar[tuple[Field, ...] | None]
    _schema: ClassVar["Schema | None"]
    _shared: ClassVar["Message | None"]
    _blank: ClassVar["type[Message] | None"]
    _decoders: ClassVar[dict[Any, Callable[..., Any]]]
    _encoders: ClassVar[dict[Any, Callable[..., Any]]]

    def __init__(self, **values: Any) -> None:
        """Compile the constructor of this class and call it: most classes are never constructed."""
        _compile_init(type(self))
        self.__init__(**values)  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message) or other._specifiers is not self._specifiers:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self._specifiers)

    def __repr__(self) -> str:
        values = ", ".join(
            f"{name}=[hidden]" if spec.secret else f"{name}={getattr(self, name)!r}"
            for name, spec in self._specifiers.items()
        )
        return f"{type(self).__name__}({values})"


class Encoded(Message):
    """An element of an array in place of a struct: the struct's bytes in the message's version.

    Encoders accept it for structs that have a separate `Schema`.
    """

    __slots__ = ("body", "codes")
    _specifiers: ClassVar[dict[str, _Specifier]] = {}
    _fields = ()

    def __init__(self, body: bytes, codes: tuple[int, ...]) -> None:
        self.body = body
        self.codes = codes
        """The error codes in the struct, without 0."""


M = TypeVar("M")


@dataclass_transform(kw_only_default=True, field_specifiers=(field, since, tagged))
def message(cls: type[M]) -> type[M]:
    """Turn a class of annotated fields into a slotted `Message` with a keyword-only constructor."""
    annotations: dict[str, Any] = getattr(cls, "__annotations__", {})
    specifiers = {name: cls.__dict__.get(name, _PLAIN) for name in annotations}
    body: dict[str, Any] = {
        name: value
        for name, value in cls.__dict__.items()
        if name not in annotations and name not in ("__dict__", "__weakref__")
    }
    body |= {
        "__slots__": tuple(annotations),
        "_specifiers": specifiers,
        "_fields": None,
        "_schema": None,
        "_shared": None,
        "_blank": None,
        "_decoders": {},
        "_encoders": {},
    }
    return cast(type[M], type(cls.__name__, (Message,), body))


def fields_of(cls: type[Message]) -> tuple[Field, ...]:
    """Return the fields of a message class in wire order; resolved once."""
    if cls._fields is None:
        cls._fields = tuple(
            Field(name, _resolve(annotation), cls._specifiers[name])
            for name, annotation in cls.__annotations__.items()
        )
    return cls._fields


def shared_default(cls: type[Message]) -> Message:
    """Return the default value of a struct: one immutable instance for all decoders."""
    if cls._shared is None:

        def refuse(self: Message, name: str, value: Any) -> None:  # noqa: ARG001
            raise AttributeError(f"the default {cls.__name__} is shared: assign a new one")

        value = cls()
        frozen = type(cls.__name__, (cls,), {"__slots__": (), "__setattr__": refuse})
        value.__class__ = frozen
        cls._shared = value
    return cls._shared


def blank(cls: type[Message]) -> type[Message]:
    """Return the subclass that decoders instantiate; only its constructor differs: it does nothing.

    Calling a class that defines no constructor is the fastest way to create an empty object.
    """
    if cls._blank is None:
        body = {"__slots__": (), "__init__": object.__init__, "__doc__": cls.__doc__}
        cls._blank = type(cls.__name__, (cls,), body)
    return cls._blank


def _resolve(annotation: Any) -> WireType:
    """Resolve an annotation of `types.py`, or a message class."""
    if isinstance(annotation, type) and issubclass(annotation, Message):
        return WireType("struct", struct=annotation)
    wire: Wire = annotation.__metadata__[0]
    if wire.kind == "array":
        return WireType("array", wire.nullable, item=_resolve(_argument(annotation.__origin__)))
    if wire.kind == "struct":
        return WireType("struct", wire.nullable, struct=get_args(annotation.__origin__)[0])
    return WireType(wire.kind, wire.nullable)


def _argument(container: Any) -> Any:
    """Return X of `list[X]` or of `list[X] | None`."""
    inner = get_args(container)[0]
    return get_args(inner)[0] if type(None) in get_args(container) else inner


def _compile_init(cls: type[Message]) -> None:
    """Give a message class a keyword-only constructor that checks presence and nothing else."""
    parameters, body = [], []
    environment: dict[str, Any] = {"MISSING": MISSING}
    for name, spec in cls._specifiers.items():
        if spec.default_factory is not None:
            environment[f"new_{name}"] = spec.default_factory
            parameters.append(f"{name}=MISSING")
            body.append(f"self.{name} = new_{name}() if {name} is MISSING else {name}")
            continue
        if spec.default is not MISSING:
            environment[f"default_{name}"] = spec.default
            parameters.append(f"{name}=default_{name}")
        else:
            parameters.append(name)
        body.append(f"self.{name} = {name}")
    head = f"def __init__(self{', *, ' if parameters else ''}{', '.join(parameters)}):"
    exec("\n    ".join([head, *(body or ["pass"])]), environment)
    cls.__init__ = environment["__init__"]  # type: ignore[method-assign]


@dataclass(frozen=True, slots=True)
class Schema:
    """The versions of a message and its first flexible version (KIP-482), if it has one."""

    cls: type[Any]
    versions: range
    flexible: int | None = None

    def __post_init__(self) -> None:
        self.cls._schema = self

    def is_flexible(self, version: int) -> bool:
        """Return whether `version` has compact lengths and tagged fields."""
        return self.flexible is not None and version >= self.flexible


@dataclass(frozen=True, slots=True)
class Api:
    """A request and its response; `versions` are those that this codec can encode and decode."""

    key: int
    name: str
    versions: range
    flexible: int | None
    request: type[Any]
    response: type[Any]
    max_elements: int = MAX_REQUEST_ELEMENTS
    """The elements that a broker accepts in one request."""

    def __post_init__(self) -> None:
        Schema(self.request, self.versions, self.flexible)
        Schema(self.response, self.versions, self.flexible)

    def is_flexible(self, version: int) -> bool:
        """Return whether `version` has compact lengths and tagged fields, in the header too."""
        return self.flexible is not None and version >= self.flexible
