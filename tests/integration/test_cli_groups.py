"""`barnabas groups` with committed offsets of a deleted topic."""

import json

import pytest
from click.testing import CliRunner

from barnabas.cli.commands.groups import groups
from barnabas.client.group_admin import GroupAdmin
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.testing import Broker


def test_an_offset_of_a_deleted_topic_has_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def offsets(_: GroupAdmin, _group: str) -> dict[TopicPartition, int]:
        return {TopicPartition("gone", 0): 7}

    async def describe(_: GroupAdmin, _group: str) -> object:
        return type("Described", (), {"members": [], "protocol_type": ""})()

    monkeypatch.setattr(GroupAdmin, "offsets", offsets)
    monkeypatch.setattr(GroupAdmin, "describe", describe)
    with Broker() as broker:
        where = ["-b", broker.bootstrap_servers]
        done = CliRunner().invoke(groups, ["describe", "readers", "--json", *where])
    (row,) = json.loads(done.output)
    assert (row["offset"], row["end"], row["lag"]) == (7, None, None)
