"""The reassignments of partitions under way, with the bytes that each new replica has."""

from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from barnabas.client.partition_admin import PartitionAdmin, Reassignment
from barnabas.console.console import Console, Page, paged
from barnabas.console.reads import disks
from barnabas.protocol.topic_partition import TopicPartition

_ON_A_PAGE: Final = 50
_FOR_S: Final = 1.5


class Copy(NamedTuple):
    """A new replica: its bytes, and those of the leader; None if a broker is silent."""

    broker: int
    bytes: int | None
    of_bytes: int | None

    @property
    def percent(self) -> int | None:
        """The share that is copied: an estimate, because segments may be deleted meanwhile."""
        if self.bytes is None or self.of_bytes is None:
            return None
        return 100 if not self.of_bytes else min(100, self.bytes * 100 // self.of_bytes)


class Move(NamedTuple):
    """A reassignment under way."""

    at: TopicPartition
    replicas: Reassignment
    copies: list[Copy]


async def show(console: Console, request: Request) -> Response:
    admin = PartitionAdmin(console.cluster)
    found = await console.results.get("reassignments", admin.reassignments, for_s=_FOR_S)
    paging = paged(request, sorted(found.items()), _ON_A_PAGE)
    moves = []
    if paging.rows:
        places = tuple(place for place, _ in paging.rows)
        replicas = (await disks(console, places, for_s=_FOR_S)).replicas
        for place, each in paging.rows:
            here = replicas.get(place, {})
            leader = await console.cluster.leader(*place)
            size = here[leader].bytes if leader in here else None
            copies = [
                Copy(broker, here[broker].bytes if broker in here else None, size)
                for broker in each.adding
            ]
            moves.append(Move(place, each, copies))
    return console.page(request, "reassignments.html", paging=paging, moves=moves)


PAGES = (Page("/reassignments", show, "Reassignments"),)
