"""One broker in this process, from its start to its orderly stop."""

import asyncio
import gc
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import click

from barnabas.cli.settings import LogOptions

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.broker.platform import Platform
    from barnabas.config.broker import BrokerConfig


SWITCH_S: Final = 0.0001
"""The time for which a thread that computes an assignment keeps the interpreter from the event
loop, each time that the loop has waited for a socket. Python's default is 5 ms."""


class Stop(asyncio.Event):
    """The event that tells a broker to stop."""

    hand_over = True
    """Whether other brokers can still become leaders of the partitions that this broker leads."""


async def _signals_only(stop: Stop) -> None:
    """Leave it to SIGINT and SIGTERM to set `stop`."""


def run_broker(
    config: "BrokerConfig",
    *,
    log: LogOptions,
    cluster_id: str,
    on_started: "Callable[[Broker, BrokerConfig], None]",
    watch: Callable[[Stop], Awaitable[None]] = _signals_only,
    log_fields: Mapping[str, object] = MappingProxyType({}),
    platform: "Platform | None" = None,
) -> None:
    """Run a broker until SIGINT or SIGTERM; ClickException if it cannot start or continue.

    `on_started` is called when the broker serves. `watch` is given the event that stops the broker
    and may set it. `log_fields` are added to every line of the log. `platform` is that of this
    machine by default.
    """
    import uvloop

    sys.setswitchinterval(SWITCH_S)
    # Almost nothing becomes garbage before the broker serves, and looking for it takes a tenth of
    # the start.
    gc.disable()
    from barnabas.broker.observability.logging import ROOT, LoggerLevels, configure

    configure(level=log.until_served or log.level, form=log.form, always=log_fields)
    raise_file_limit()

    def started(broker: "Broker", config: "BrokerConfig") -> None:
        on_started(broker, config)
        _tell_of_interpreter()
        if log.until_served is not None:
            LoggerLevels().change(ROOT, log.level.upper())

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(config, cluster_id, started, watch, platform))


def raise_file_limit() -> None:
    """Raise the limit of open files to the hard limit.

    The soft limit of a shell is often 1024, and a partition has several files open.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(
    config: "BrokerConfig",
    cluster_id: str,
    on_started: "Callable[[Broker, BrokerConfig], None]",
    watch: Callable[[Stop], Awaitable[None]],
    platform: "Platform | None",
) -> None:
    from barnabas.broker.app import Broker
    from barnabas.broker.cluster.features import FeatureNotSupported
    from barnabas.broker.cluster.registration import BrokerIdInUse
    from barnabas.broker.store.journal_format import JournalError
    from barnabas.broker.store.metadata_store import StoreError
    from barnabas.config.key import ConfigError
    from barnabas.storage.opening.meta_properties import MetaPropertiesError

    refusals = (
        *(BrokerIdInUse, ConfigError, FeatureNotSupported),
        *(JournalError, MetaPropertiesError, StoreError),
    )
    broker = Broker(config, platform=platform, cluster_id=cluster_id)
    stop = Stop()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await watch(stop)
    try:
        if not await _start(broker, stop):
            return
    except refusals as error:
        raise click.ClickException(str(error)) from error
    broker.rule_collector()
    try:
        if broker.has_certificates:
            # Without certificates SIGHUP ends the process, as it did, when its terminal closes.
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGHUP, broker.reload_certificates)
        on_started(broker, config)
        ends = [asyncio.ensure_future(event.wait()) for event in (stop, broker.failed)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
    finally:
        await broker.stop(hand_over=stop.hand_over)
    if broker.failed.is_set():
        raise click.ClickException("the broker failed and stopped; its log says why")


def _tell_of_interpreter() -> None:
    """Log that this Python is a slow one; after the start, which does not wait for it."""
    from barnabas.broker.observability.interpreter import is_profile_guided
    from barnabas.broker.observability.logging import get_logger

    if is_profile_guided() is False:
        get_logger(__name__).info(
            "python was built without profile-guided optimization: "
            "a request costs 10 to 70 % more CPU time",
            python=sys.version.partition(" ")[0],
        )


async def _start(broker: "Broker", stop: Stop) -> bool:
    """Start the broker; return False if it was told to stop first, e.g. while it waited for others.

    Raises whatever `Broker.start` raises.
    """
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
