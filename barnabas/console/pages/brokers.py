"""The brokers: live ones with their disks, and those that replicas need and that are not alive."""

from starlette.requests import Request
from starlette.responses import Response

from barnabas.client.admin import Admin
from barnabas.console.console import Console, Page
from barnabas.console.reads import disks, rates
from barnabas.operations.brokers import broker_rows


async def show(console: Console, request: Request) -> Response:
    cluster = console.cluster
    described = await console.results.get("cluster", Admin(cluster).describe_cluster, for_s=1.0)
    rows = await broker_rows(cluster, described)
    here = {row.broker for row in rows}
    lost = {
        node
        for topic in cluster.topics.values()
        for row in topic.description.partitions
        for node in row.replica_nodes
        if node not in here
    }
    found, counted = await disks(console), await rates(console)
    return console.page(
        request,
        "brokers.html",
        brokers=rows,
        lost=sorted(lost),
        disks=found,
        rates={row.broker: counted.of_broker(row.broker) for row in rows},
    )


PAGES = (Page("/brokers", show, "Brokers"),)
