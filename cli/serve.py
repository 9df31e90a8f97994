"""`barnabas serve`: one broker in this process, or several in processes of their own."""

import asyncio
import gc
import os
import resource
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from barnabas.cli.arguments import parse_pairs
from barnabas.cli.settings import DEFAULT_LISTENER, read_properties

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.config.broker import BrokerConfig

LOG_LEVELS = ("fatal", "error", "warn", "info", "debug", "trace")


@click.command()
@click.option("-l", "--listen", metavar="HOST:PORT", help=f"Address to serve [{DEFAULT_LISTENER}].")
@click.option("-d", "--data", type=click.Path(path_type=Path), help="Directory of the data.")
@click.option(
    "--config",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A server.properties file.",
)
@click.option("-s", "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set a key.")
@click.option("--strict-config", is_flag=True, help="Refuse keys that have no effect here.")
@click.option("--metrics", metavar="HOST:PORT", help="Serve /metrics, /healthz and /readyz here.")
@click.option(
    "--processes",
    type=click.IntRange(1),
    help="Run so many brokers, with ids and ports that follow each other: one for each core.",
)
@click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS, case_sensitive=False),
    default="info",
    show_default=True,
)
def serve(
    listen: str | None,
    data: Path | None,
    file: Path | None,
    sets: tuple[str, ...],
    strict_config: bool,
    metrics: str | None,
    processes: int | None,
    log_level: str,
) -> None:
    """Run a broker until it is told to stop.

    Settings: KAFKA_... environment variables, over --config, under --set and the other options.
    CLUSTER_ID is the id of a cluster that is new, and must be the one of a cluster that is not.

    With --processes the ports of every listener go up by one from broker to broker, and a listener
    for the brokers themselves lies behind those of the first. All have one broker.rack, by default
    the name of this host: on ZooKeeper replicas then lie on different hosts.
    """
    # Imported late: `barnabas --help` needs no broker.
    from barnabas.config.broker import BrokerConfig
    from barnabas.config.key import ConfigError
    from barnabas.config.properties import cluster_id

    options = parse_pairs(sets)
    if listen is not None:
        options["listeners"] = f"PLAINTEXT://{listen}"
    if data is not None:
        options["log.dirs"] = str(data)
    if metrics is not None:
        options["metrics.listener"] = metrics
    properties = read_properties(file, options)
    try:
        wanted = cluster_id(os.environ)
        if processes is not None:
            from barnabas.cli.supervisor import run_several

            run_several(
                properties,
                processes,
                strict=strict_config,
                log_level=log_level,
                cluster_id=wanted,
            )
            return
        config = BrokerConfig.from_properties(properties, strict=strict_config)
    except ConfigError as error:
        raise click.ClickException(str(error)) from None
    run(config, log_level=log_level, cluster_id=wanted)


class Stop(asyncio.Event):
    """Set when a broker is to stop."""

    hand_over = True
    """Whether others can still take over what it leads."""


async def _nobody(stop: Stop) -> None:
    """Only signals say when to stop."""


def run(
    config: "BrokerConfig",
    *,
    log_level: str,
    cluster_id: str,
    started: "Callable[[Broker, BrokerConfig], None] | None" = None,
    follow: Callable[[Stop], Awaitable[None]] = _nobody,
    logged: Mapping[str, object] = MappingProxyType({}),
) -> None:
    """Runs a broker until SIGINT or SIGTERM; ClickException where it cannot start or go on.

    `started` is told when it serves, `follow` gets the event that stops it, and every line of the
    log has what is `logged`.
    """
    import uvloop

    # Nothing becomes garbage before the broker serves: looking for it is a tenth of the start.
    gc.disable()
    from barnabas.broker.observability.logging import configure

    configure(level=log_level, always=logged)
    allow_many_files()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(config, cluster_id, started or _greet, follow))


def allow_many_files() -> None:
    """Every file that the system grants: shells stop at 1024, and a partition holds several."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _serve(
    config: "BrokerConfig",
    cluster_id: str,
    started: "Callable[[Broker, BrokerConfig], None]",
    follow: Callable[[Stop], Awaitable[None]],
) -> None:
    from barnabas.broker.app import Broker
    from barnabas.broker.metadata.cluster import BrokerIdInUse
    from barnabas.broker.metadata.journal_format import JournalError
    from barnabas.broker.metadata.store import StoreError
    from barnabas.config.key import ConfigError
    from barnabas.storage.meta_properties import MetaPropertiesError

    broker = Broker(config, cluster_id=cluster_id)
    stop = Stop()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await follow(stop)
    try:
        if not await _started(broker, stop):
            return
    except (BrokerIdInUse, ConfigError, JournalError, MetaPropertiesError, StoreError) as error:
        raise click.ClickException(str(error)) from error
    # What is here now stays: later collections need not look at it.
    gc.freeze()
    gc.enable()
    try:
        started(broker, config)
        ends = [asyncio.ensure_future(event.wait()) for event in (stop, broker.failed)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
    finally:
        await broker.stop(hand_over=stop.hand_over)
    if broker.failed.is_set():
        raise click.ClickException("the broker could not go on; its log says why")


async def _started(broker: "Broker", stop: Stop) -> bool:
    """Starts the broker; False where it was told to stop first, say while it waited for others."""
    starting, stopping = asyncio.ensure_future(broker.start()), asyncio.ensure_future(stop.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():
        starting.cancel()
        with suppress(asyncio.CancelledError):
            await starting
        return False
    await starting
    return True


def _greet(broker: "Broker", config: "BrokerConfig") -> None:
    where = ", ".join(config.data_directories)
    click.echo(f"Barnabas serves {broker.bootstrap_servers}; its data is in {where}.")
    at = "" if broker.bootstrap_servers == DEFAULT_LISTENER else f" -b {broker.bootstrap_servers}"
    click.echo(f"  produce:  echo hello | barnabas produce greetings{at}")
    click.echo(f"  consume:  barnabas consume greetings --from beginning{at}")
    click.echo("  stop:     Ctrl-C")
