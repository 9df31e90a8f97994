"""Our messages have the fields of Kafka's own definitions, which its jar has as JSON.

`tests/unit/protocol/test_foreign.py` compares older versions with a library, value by value.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from barnabas.protocol.schema import FIRST_OWN_TAG, Api, Message, fields_of
from tests.referee.releases import last_version
from tests.support.kafka.jars import require
from tests.support.raw import APIS

pytestmark = pytest.mark.xdist_group("referee")

RENAMED = {
    "InitProducerIdRequest.enable_two_phase_commit": "enable2_pc",
    "TxnOffsetCommitRequest.generation_id": "generation_id_or_member_epoch",
}
"""Fields that have another name here; a generation is one up to the consumer protocol."""

_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@cache
def definition(name: str) -> dict[str, Any]:
    """Return Kafka's definition of a message."""
    (jar,) = Path(require().rstrip("*")).glob("kafka-clients-*.jar")
    with ZipFile(jar) as files:
        text = files.read(f"common/message/{name}.json").decode()
    found: dict[str, Any] = json.loads(_COMMENT.sub("", text))
    return found


def theirs(fields: list[dict[str, Any]], common: dict[str, Any], version: int) -> Iterator[Any]:
    """Yield name, kind, nullability, tag and inner fields of what a version has."""
    for each in fields:
        if not _has(each["versions"], version):
            continue
        kind, inner = each["type"], each.get("fields")
        item = kind.removeprefix("[]")
        inner = common.get(item, inner)
        yield (
            _WORD.sub("_", each["name"]).lower(),
            "array" if item != kind else "struct" if inner else kind,
            _has(each.get("nullableVersions", "none"), version),
            each.get("tag") if _has(each.get("taggedVersions", "none"), version) else None,
            [*theirs(inner, common, version)] if inner else item,
        )


def ours(cls: type[Message], version: int) -> Iterator[Any]:
    """Yield the same of a message class."""
    for each in fields_of(cls):
        tag = each.spec.tag
        if not each.exists(version) or (tag is not None and tag >= FIRST_OWN_TAG):
            continue
        item = each.type.item or each.type
        yield (
            RENAMED.get(f"{cls.__name__}.{each.name}", each.name),
            each.type.kind,
            each.nullable(version),
            tag,
            [*ours(item.struct, version)] if item.struct is not None else item.kind,
        )


def _has(versions: str, version: int) -> bool:
    first, _, last = versions.partition("-")
    if first == "none":
        return False
    if first.endswith("+"):
        return version >= int(first[:-1])
    return int(first) <= version <= int(last or first)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_newest_version_has_the_fields_of_kafkas_definition(api: Api) -> None:
    version = last_version(api)
    for side, cls in (("Request", api.request), ("Response", api.response)):
        found = definition(f"{api.name}{side}")
        common = {each["name"]: each["fields"] for each in found.get("commonStructs", ())}
        expected = [*theirs(found["fields"], common, version)]
        assert [*ours(cls, version)] == expected, side
    assert _has(definition(f"{api.name}Request")["validVersions"], version)
