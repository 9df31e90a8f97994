"""Where Barnabas answers otherwise than Apache Kafka 4.3 on purpose: docs/COMPATIBILITY.md.

A difference names the scenarios that show it. Each of them must show it, so that none outlives
what it describes.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """One wanted difference.

    Attributes:
        scenarios: titles of scenarios (`Api/name`, `*` for any) that show it.
        path: the field, as `Api.field[0].field`, `*` for any.
        kafka: what Kafka does, in words.
        barnabas: what Barnabas does instead.
        why: the reason.
        versions: the versions of the scenario that show it; all where empty.
    """

    scenarios: tuple[str, ...]
    path: str
    kafka: str
    barnabas: str
    why: str
    versions: tuple[int, ...] = ()


WANTED: tuple[Difference, ...] = ()
