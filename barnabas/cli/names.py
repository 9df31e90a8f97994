"""The names that a shell completes: topics, groups, transactional ids, brokers and keys.

The script of `barnabas completion` runs the command line, which asks the cluster that the words so
far name. Without an answer in time there is nothing to complete, and no error.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, Final, TypeVar

import click

from barnabas.cli.common import target_of
from barnabas.cli.help import in_other_number
from barnabas.client.cluster import Cluster

ANSWER_S: Final = 0.15
"""The longest wait for the cluster: with the start of Python a completion takes about 0.3 s."""
F = TypeVar("F", bound=Callable[..., Any])
Complete = Callable[[click.Context, click.Parameter, str], list[str]]
"""A function for click's `shell_complete`: from the words so far and a beginning to names."""
Find = Callable[[Cluster], Awaitable[Iterable[str]]]


def _of_cluster(find: Find) -> Complete:
    def complete(context: click.Context, _parameter: click.Parameter, beginning: str) -> list[str]:
        async def ask() -> list[str]:
            server, properties = map(context.params.get, ("bootstrap_server", "properties"))
            target = target_of(server, properties or {}, ANSWER_S, as_json=False)
            async with target.cluster(target.connect()) as cluster:
                return sorted(each for each in await find(cluster) if each.startswith(beginning))

        stored = context.parent.params if context.parent is not None else {}
        if stored.get("data") is None and stored.get("zookeeper") is None:
            with suppress(Exception):
                return asyncio.run(asyncio.wait_for(ask(), ANSWER_S))
        return []

    return complete


async def _topics(cluster: Cluster) -> Iterable[str]:
    await cluster.refresh()
    return cluster.topics


async def _groups(cluster: Cluster) -> Iterable[str]:
    from barnabas.client.group_admin import GroupAdmin

    return [each.group_id for each in await GroupAdmin(cluster).groups()]


async def _transactional_ids(cluster: Cluster) -> Iterable[str]:
    from barnabas.client.transaction_admin import TransactionAdmin

    found = await TransactionAdmin(cluster).transactions()
    return [each.transactional_id for each in found]


async def _brokers(cluster: Cluster) -> Iterable[str]:
    return [str(each) for each in cluster.nodes]


topics: Final = _of_cluster(_topics)
groups: Final = _of_cluster(_groups)
transactional_ids: Final = _of_cluster(_transactional_ids)
brokers: Final = _of_cluster(_brokers)
_BY_KIND: Final = {"topic": topics, "broker": brokers, "broker-logger": brokers, "group": groups}


def configured(context: click.Context, parameter: click.Parameter, beginning: str) -> list[str]:
    """Return the names of the kind of thing whose configuration the command is about."""
    complete = _BY_KIND.get(_kind(context))
    return [] if complete is None else complete(context, parameter, beginning)


def keys(context: click.Context, _parameter: click.Parameter, beginning: str) -> list[str]:
    """Return the keys of a topic's configuration, or of that kind of thing."""
    from barnabas.config.broker import BrokerConfig
    from barnabas.config.group_keys import GroupConfig
    from barnabas.config.topic import TopicConfig

    tables = {"topic": TopicConfig, "broker": BrokerConfig, "group": GroupConfig}
    table = tables.get(_kind(context))
    return [] if table is None else [each for each in table.KEYS if each.startswith(beginning)]


def key_option(*declarations: str, metavar: str = "KEY=VALUE", help: str) -> Callable[[F], F]:
    """Return an option that takes keys of a configuration, any number of times."""
    return click.option(
        *declarations, multiple=True, metavar=metavar, shell_complete=keys, help=help
    )


def _kind(context: click.Context) -> str:
    """Return the kind of thing that a command configures; most work on topics."""
    if "kind" not in context.params:
        return "topic"
    # Click parses no argument if the last option has no value yet.
    return in_other_number(context.params["kind"] or next(iter(context.args), ""), _BY_KIND)
