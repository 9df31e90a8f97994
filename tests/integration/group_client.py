"""Requests about one group over a raw connection."""

from typing import Any

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    join_group,
    leave_group,
    offset_commit,
    offset_fetch,
    sync_group,
)
from tests.support.data_path import Client

GROUP = "g"


class GroupClient:
    """Requests about one group and one topic, each in the version that the test names."""

    def __init__(self, client: Client, topic_id: bytes) -> None:
        self.client = client
        self.topic_id = topic_id

    async def ask(self, module: Any, request: Any, version: int) -> Any:
        return await self.client.connection.request(module.API, request, version=version)

    async def join(self, version: int, member_id: str = "", **options: Any) -> Any:
        request = join_group.JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[join_group.JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0")],
            **({"rebalance_timeout_ms": 10_000} if version else {}),
            **options,
        )
        return await self.ask(join_group, request, version)

    async def member(self, version: int) -> Any:
        """Join a new generation; return the response."""
        answer = await self.join(version)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            answer = await self.join(version, answer.member_id)
        assert answer.error_code == 0, answer
        return answer

    async def sync(self, version: int, joined: Any, **options: Any) -> Any:
        names = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
        given = sync_group.SyncGroupRequestAssignment(
            member_id=joined.member_id, assignment=b"mine"
        )
        request = sync_group.SyncGroupRequest(
            group_id=GROUP,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[given],
            **{**names, **options},
        )
        return await self.ask(sync_group, request, version)

    async def leave(self, version: int, member_id: str) -> Any:
        request = leave_group.LeaveGroupRequest(group_id=GROUP, member_id=member_id)
        if version >= 3:
            one = leave_group.MemberIdentity(member_id=member_id)
            request = leave_group.LeaveGroupRequest(group_id=GROUP, member_id="", members=[one])
        return await self.ask(leave_group, request, version)

    async def commit(self, version: int, offset: int, partition: int = 0, **options: Any) -> int:
        by_id = version >= 10
        names: Any = {"topic_id": self.topic_id} if by_id else {"name": "t"}
        request = offset_commit.OffsetCommitRequest(
            group_id=GROUP,
            member_id="",
            topics=[
                offset_commit.OffsetCommitRequestTopic(
                    **{**names, **options.pop("topic", {})},
                    partitions=[
                        offset_commit.OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_metadata=None,
                        )
                    ],
                )
            ],
            **options,
        )
        answer = await self.ask(offset_commit, request, version)
        return int(answer.topics[0].partitions[0].error_code)

    async def fetch(self, version: int, *, everything: bool = False) -> list[int]:
        """Return the committed offsets of partitions 0 and 1, or of all partitions."""
        if version < 8:
            wanted = offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])
            request = offset_fetch.OffsetFetchRequest(
                group_id=GROUP, topics=None if everything else [wanted]
            )
            answer = await self.ask(offset_fetch, request, version)
            return [each.committed_offset for topic in answer.topics for each in topic.partitions]
        names: Any = {"topic_id": self.topic_id} if version >= 10 else {"name": "t"}
        topics = [offset_fetch.OffsetFetchRequestTopics(**names, partition_indexes=[0, 1])]
        groups = [
            offset_fetch.OffsetFetchRequestGroup(
                group_id=each, topics=None if everything else topics
            )
            for each in (GROUP, "another")
        ]
        answer = await self.ask(
            offset_fetch, offset_fetch.OffsetFetchRequest(groups=groups), version
        )
        assert [each.group_id for each in answer.groups] == [GROUP, "another"]
        found = answer.groups[0].topics
        return [each.committed_offset for topic in found for each in topic.partitions]
