"""`barnabas cluster`: run several brokers on this machine; the state of any cluster."""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

import click

from barnabas.cli import arguments
from barnabas.cli.arguments import parse_pairs
from barnabas.cli.commands.secure import secure_options, secured
from barnabas.cli.common import UNHEALTHY, Target, cluster_options, http_options
from barnabas.cli.files import AddressFile
from barnabas.cli.help import Group
from barnabas.cli.processes.console import console_child
from barnabas.cli.settings import (
    DEFAULT_LISTENER,
    LOG_LEVELS,
    LogOptions,
    address_file_option,
    console_option,
    default_data_directory,
    faults_option,
)
from barnabas.cli.tables import cell, escape, tell
from barnabas.operations.quantities import time_text
from barnabas.protocol.errors import KafkaError

if TYPE_CHECKING:
    from barnabas.client.cluster import Cluster
    from barnabas.operations.answers.cluster import ClusterInfo, Event, Problem
    from barnabas.operations.broker_http import HttpAccess
    from barnabas.operations.health import Changes

FIRST_ID = 1
REPLICAS = 3
_POLL_S: Final = 0.5
_SECONDS: Final = click.FloatRange(min=0)
_MOST_SHOWN: Final = 3
"""The most problems of a broker in a table."""
T = TypeVar("T")


@click.group(cls=Group)
def cluster() -> None:
    """Run several brokers on this machine; show the state of any cluster."""


@cluster.command()
@click.option(
    "-n",
    "--brokers",
    default=3,
    show_default=True,
    type=click.IntRange(1),
    help="Number of brokers.",
)
@click.option(
    "-l",
    "--listen",
    default=DEFAULT_LISTENER,
    show_default=True,
    metavar="HOST:PORT",
    help="Address of the first broker; the others get the next ports. Port 0: any free ports.",
)
@click.option(
    "-d",
    "--data",
    type=click.Path(path_type=Path),
    help="Log directory (log.dirs) [$XDG_STATE_HOME/barnabas/cluster, or "
    "~/.local/state/barnabas/cluster].",
)
@click.option("-s", "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set a key.")
@address_file_option
@console_option
@faults_option
@secure_options
@click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS, case_sensitive=False),
    default="warn",
    show_default=True,
    help="Level of the log.",
)
def up(
    brokers: int,
    listen: str,
    data: Path | None,
    sets: tuple[str, ...],
    address_file: Path | None,
    console: str | None,
    faults: str | None,
    secure: bool,
    secure_directory: Path | None,
    log_level: str,
) -> None:
    """Run a cluster until Ctrl-C; the next run starts with the same data.

    Topics have three replicas and min.insync.replicas=2. A broker that dies is started again.
    --secure is as for `barnabas serve`.
    """
    from barnabas.cli.processes.supervisor import run_brokers
    from barnabas.config.key import ConfigError
    from barnabas.config.properties import cluster_id

    properties = {
        "log.dirs": str(data or default_data_directory() / "cluster"),
        "listeners": f"PLAINTEXT://{listen}",
        "min.insync.replicas": str(min(2, brokers)),
        **parse_pairs(sets),
    }
    if "node.id" not in properties:
        properties.setdefault("broker.id", str(FIRST_ID))
    try:
        made = secured(properties, secure, secure_directory, several=True)
        properties = properties if made is None else made.properties
        beside = console_child(console, made, properties, brokers)
        with beside as (on, own), AddressFile(address_file, on) as address:
            run_brokers(
                own,
                brokers,
                replicas=min(REPLICAS, brokers),
                strict=True,
                log=LogOptions(log_level),
                cluster_id=cluster_id(os.environ),
                secured=made,
                address=address,
                faults=faults,
            )
    except ConfigError as error:
        raise click.ClickException(str(error)) from None


@cluster.command()
@cluster_options
def info(target: Target) -> None:
    """Show id, controller, brokers, features and sizes of a cluster."""
    target.show_one(target.run(_info))


async def _info(cluster: "Cluster") -> "ClusterInfo":
    from barnabas.client.admin import Admin, finalized_features
    from barnabas.client.group_admin import GroupAdmin
    from barnabas.operations.answers.cluster import BrokerAddress, ClusterInfo
    from barnabas.operations.brokers import broker_rows

    described = await Admin(cluster).describe_cluster()
    rows = await broker_rows(cluster, described)
    features = await finalized_features(cluster)
    topics = [topic for topic in cluster.topics.values() if not topic.is_internal]
    return ClusterInfo(
        cluster_id=described.cluster_id,
        controller=described.controller_id if described.controller_id >= 0 else None,
        brokers=[BrokerAddress(row.broker, row.address, row.rack) for row in rows],
        features=dict(sorted(features.items())),
        topics=len(topics),
        partitions=sum(len(topic.leaders) for topic in topics),
        groups=len(await GroupAdmin(cluster).groups()),
    )


@cluster.command()
@click.option(
    "--watch", is_flag=True, help="Check every second until Ctrl-C, and print what changes."
)
@click.option(
    "--wait", type=_SECONDS, metavar="SECONDS", help="Wait so long for a healthy cluster."
)
@cluster_options
def health(target: Target, watch: bool, wait: float | None) -> None:
    """Check brokers, log directories, controller, leaders, ISR, and consumers held back.

    Prints the problems, a cause before its symptoms. The exit code is 0 without one, and 3
    otherwise.
    """
    from barnabas.operations.health import find_problems

    def check() -> "list[Problem]":
        return target.run(find_problems)

    deadline = time.monotonic() + (wait or 0)
    problems = _patiently(check, deadline, lambda found: not found)
    if watch:
        _watch(target, problems, check)
    _show(target, problems)
    if problems:
        raise click.exceptions.Exit(UNHEALTHY)


@cluster.command()
@click.option("--follow", is_flag=True, help="Print further events until Ctrl-C.")
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only events of this kind.")
@click.option(
    "--since",
    "since_ms",
    type=arguments.time,
    default="0",
    metavar="TIME",
    help="Only events from this time on: 2026-11-22T10:00Z, -1h or ms.",
)
@http_options
@cluster_options
def events(
    target: Target, follow: bool, kinds: tuple[str, ...], since_ms: int, access: "HttpAccess"
) -> None:
    """Show the latest events of all brokers: elections, ISRs, sessions, rebalances and so on.

    Brokers with metrics.listener keep the latest of each kind in memory, until they end.
    docs/events.md has the kinds. The exit code is 1 if no broker could be asked.
    """
    from barnabas.operations.broker_http import Endpoints
    from barnabas.operations.events import ClusterEvents

    async def show(cluster: "Cluster") -> None:
        events, told = ClusterEvents(cluster, Endpoints(cluster, access)), dict[int, str]()
        while True:
            found = [
                each
                for each in await events.read()
                if (not kinds or each.kind in kinds) and each.time_ms >= since_ms
            ]
            _show_events(target, found, lines=follow)
            for broker, problem in sorted(events.problems.items()):
                if told.get(broker) != problem:
                    tell(f"broker {broker}: {problem}", err=True)
            told = events.problems
            if not follow:
                break
            await asyncio.sleep(1)
        if len(told) == len(cluster.nodes):
            raise click.exceptions.Exit(1)

    target.run(show)


def _show_events(target: Target, events: "list[Event]", *, lines: bool) -> None:
    if target.as_json and lines:
        for each in events:
            target.answer(each, indent=None)
    elif target.as_json:
        target.answer(events)
    else:
        for each in events:
            row = [each.kind, f"broker {each.broker}", cell(each.subject), each.text]
            # Clients choose names, which must not add lines.
            _tell_line(each.time_ms, [*map(escape, row)], (21, 9, 20, 1))


@cluster.command("rolling-restart")
@click.option("--check", is_flag=True, required=True, help="Say which broker may be restarted.")
@click.option("--broker", type=int, metavar="ID", help="Only this broker.")
@click.option("--wait", type=_SECONDS, metavar="SECONDS", help="Wait so long until it may.")
@cluster_options
def rolling_restart(
    target: Target,
    check: bool,  # noqa: ARG001  (what the command does besides is up to init systems)
    broker: int | None,
    wait: float | None,
) -> None:
    """Check whether brokers may be restarted one after another: a row for each, in a good order.

    The controller comes last. A broker may be restarted if every partition keeps a leader and
    min.insync.replicas without it, and nothing else is wrong. The table has the first problems of
    each, a cause before its symptoms, and --json all. The exit code is 0 if each may, and 3
    otherwise.

    `cluster rolling-restart --check --broker 2 --wait 300 && systemctl restart barnabas`
    """
    from barnabas.cli.draining import restarts
    from barnabas.operations.answers.cluster import Restart

    rows = _patiently(
        lambda: target.run(lambda cluster: restarts(cluster, broker)),
        time.monotonic() + (wait or 0),
        lambda rows: all(row.may_be_restarted for row in rows),
    )
    if target.as_json:
        target.answer(rows)
    else:
        target.show(Restart, [replace(row, problems=_first(row.problems)) for row in rows])
    if not all(row.may_be_restarted for row in rows):
        raise click.exceptions.Exit(UNHEALTHY)


def _first(problems: list[str]) -> list[str]:
    """Return the first problems and the number of the others: one cause may have thousands."""
    more = len(problems) - _MOST_SHOWN
    return problems if more <= 0 else [*problems[:_MOST_SHOWN], f"and {more} more, see --json"]


def _patiently(check: "Callable[[], T]", deadline: float, is_well: "Callable[[T], bool]") -> T:
    """Check until all is well or the deadline is over; so long the cluster may be away."""
    while True:
        late = time.monotonic() >= deadline
        try:
            found = check()
        except Exception:
            if late:
                raise
        else:
            if late or is_well(found):
                return found
        time.sleep(_POLL_S)


def _watch(
    target: Target, problems: "list[Problem]", check: "Callable[[], list[Problem]]"
) -> NoReturn:
    """Print the problems, and then the changes of every second until Ctrl-C."""
    from barnabas.cli.failures import explain
    from barnabas.operations.health import Changes, unreachable

    known: list[Problem] = []
    while True:
        changes = Changes.between(known, problems)
        if any(changes) or not (known or problems):
            _show_changes(target, changes, healthy=not problems)
        known = problems
        while known == problems:
            time.sleep(1)
            try:
                problems = check()
            except (KafkaError, OSError) as error:
                problems = unreachable(known, explain(error))


def _show_changes(target: Target, changes: "Changes", *, healthy: bool) -> None:
    at_ms = time.time_ns() // 1_000_000
    if target.as_json:
        from barnabas.operations.answers.cluster import HealthChange

        target.answer(HealthChange(at_ms, healthy, *changes), indent=None)
        return
    rows = [
        [word, each.check, each.where, each.problem]
        for word, listed in (("problem", changes.appeared), ("solved", changes.solved))
        for each in listed
    ]
    if healthy:
        rows.append(["The cluster is healthy."])
    for row in rows:
        _tell_line(at_ms, row, (7, 12, 1, 1))


def _tell_line(at_ms: int, row: list[str], widths: tuple[int, ...]) -> None:
    at = time_text(at_ms)
    if sys.stdout.isatty():
        # The date is for files, which are read later.
        tell("  ".join((f"{at[11:19]}Z", *map("{:{}}".format, row, widths))))
    else:
        tell("\t".join((at, *row)))


def _show(target: Target, problems: "list[Problem]") -> None:
    from barnabas.operations.answers.cluster import Problem

    if problems or target.as_json:
        target.show(Problem, problems)
    else:
        tell("The cluster is healthy.")
