"""The group metadata of a consumer, for offset commits in transactions."""

from typing import NamedTuple


class GroupMetadata(NamedTuple):
    """A member of a consumer group; the coordinator refuses commits of a removed member (KIP-447).

    With the defaults only the group is known, and no member is fenced.
    """

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None
