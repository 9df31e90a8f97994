"""`barnabas transactions why`: what a reader of committed data waits for."""

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

from barnabas.cli.common import Target, cluster_options
from barnabas.cli.places import Place, partitions_of, place
from barnabas.cli.standstill import Happened, Standstill, standstills
from barnabas.client.cluster import Cluster


@click.command()
@click.argument("named", metavar="TOPIC[:PARTITION]", callback=place)
@cluster_options
def why(target: Target, named: Place) -> None:
    """Say why a read_committed reader stands still."""
    found = target.run(lambda cluster: _found(cluster, named))
    if target.as_json:
        click.echo(json.dumps([_as_json(each) for each in found], indent=2))
    elif not found:
        target.done(f"Nothing holds readers of {_text(named)} back.")
    for each in () if target.as_json else found:
        target.show(["what", "value"], _facts(each), title=f"{each.topic}:{each.partition}")
        if each.timeline:
            target.show(["time", "event"], _timeline(each.timeline))
        click.echo(f"{each.topic}:{each.partition}: {each.because}")
        if each.advice:
            click.echo(f"try: {each.advice}")


async def _found(cluster: Cluster, named: Place) -> list[Standstill]:
    now_ms = time.time_ns() // 1_000_000
    return await standstills(cluster, await partitions_of(cluster, [named]), now_ms=now_ms)


def _text(named: Place) -> str:
    topic, partition = named
    return topic if partition is None else f"{topic}:{partition}"


def _as_json(found: Standstill) -> dict[str, Any]:
    return {**found._asdict(), "timeline": [each._asdict() for each in found.timeline]}


def _facts(found: Standstill) -> list[dict[str, Any]]:
    units = {"age_ms": "age", "time_left_ms": "time_left"}
    rows = []
    for name, value in found._asdict().items():
        if name in ("topic", "partition", "timeline", "because", "advice"):
            continue
        shown = f"{value / 1000:.1f} s" if name in units and value is not None else value
        rows.append({"what": units.get(name, name).replace("_", " "), "value": shown})
    return rows


def _timeline(events: Sequence[Happened]) -> list[dict[str, Any]]:
    return [{"time": _clock(each.at_ms), "event": each.event} for each in events]


def _clock(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")
