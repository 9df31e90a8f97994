"""The subject of a record's schema, by the naming strategies of Confluent's serializers."""

from typing import Final, Literal, get_args

from barnabas.registry.wire import Part

Naming = Literal["topic", "record", "topic-record"]
NAMINGS: Final = get_args(Naming)


def subject_of(naming: Naming, topic: str | None, record: str | None, part: Part = "value") -> str:
    """Return the subject of the values or keys of a topic; ValueError says what is missing.

    `record` is the full name of the record or message, in JSON Schema its title.
    """
    if naming != "record" and topic is None:
        raise ValueError("several topics have no subject together: give the subject")
    if naming == "topic":
        return f"{topic}-{part}"
    if record is None:
        raise ValueError(f"the naming {naming!r} needs the name of the record")
    return record if naming == "record" else f"{topic}-{record}"
