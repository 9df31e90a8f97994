"""Who a member of a consumer group is, for those who commit offsets on its behalf."""

from typing import NamedTuple


class GroupMetadata(NamedTuple):
    """A member of a consumer group, so that a transaction of a member that is gone is refused.

    With the defaults nothing but the group is told, and nobody is fenced (KIP-447).
    """

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None
