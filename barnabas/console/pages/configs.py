"""The configuration of a topic, a broker or a group: values, sources and meanings."""

from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from barnabas.client.admin import Admin
from barnabas.console.console import Console, Page, parameter
from barnabas.protocol.config_resources import (
    CONFIG_SOURCES,
    DEFAULT_SOURCE,
    ConfigResourceType,
)

_KINDS: Final = {
    "topic": ConfigResourceType.TOPIC,
    "broker": ConfigResourceType.BROKER,
    "group": ConfigResourceType.GROUP,
}


async def show(console: Console, request: Request) -> Response:
    kind, name = parameter(request, "kind"), parameter(request, "name")
    everything = "all" in request.query_params
    if kind not in _KINDS:
        raise HTTPException(400, f"The kind must be one of {', '.join(_KINDS)}.")
    if kind == "broker" and not (name.isascii() and name.isdigit()):
        raise HTTPException(400, "The name of a broker is its id.")
    await console.cluster.refresh()
    admin = Admin(console.cluster)
    rows = await admin.describe_configs(_KINDS[kind], name, documented=True)
    shown = [row for row in rows if everything or row.config_source != DEFAULT_SOURCE]
    return console.page(
        request,
        "configs.html",
        kind=kind,
        name=name,
        everything=everything,
        rows=sorted(shown, key=lambda row: row.name),
        defaults=len(rows) - len(shown),
        sources=CONFIG_SOURCES,
    )


PAGES = (Page("/configs", show),)
