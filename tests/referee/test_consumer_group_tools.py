"""Kafka's tools for groups print of consumer groups (KIP-848) what they print beside Kafka."""

import itertools
from collections.abc import Callable

import pytest

from barnabas.protocol.messages.consumer_group_heartbeat import API
from tests.referee import given
from tests.referee.brokers import Address, set_level
from tests.referee.consumers import beat, join, topic
from tests.referee.releases import referee
from tests.referee.scenario import Peer
from tests.support.kafka.tools import CONSUMER_GROUPS, GROUPS, Tools

pytestmark = [
    pytest.mark.xdist_group("referee"),
    pytest.mark.skipif(referee() < (4, 4), reason="older tools print other columns"),
]

OURS = "group-tools"
"""The beginning of the names of all groups here; the brokers have others."""
Ask = Callable[..., None]

_plays = itertools.count()


def test_tools_print_the_same_in_the_life_of_a_group(
    tools: Tools, kafka: Address, barnabas: Address
) -> None:
    slug = f"{OURS}-{next(_plays)}"
    theirs, ours = (printed(tools, each, slug) for each in (kafka, barnabas))
    assert any("Reconciling" in line for said in theirs.values() for line in said)
    assert ours == theirs


def printed(tools: Tools, broker: Address, slug: str) -> dict[str, list[str]]:
    """Return the exit code and the lines of each tool, by its place and its arguments."""
    said: dict[str, list[str]] = {}
    set_level(broker, 0)
    with Peer(*broker, API, 1, slug) as s:

        def ask(tool: str, *arguments: str) -> None:
            at = ("--bootstrap-server", f"{broker.host}:{broker.port}")
            done = tools.run(tool, *at, *arguments)
            text = (done.text + done.errors).replace(str(broker.port), "PORT")
            lines = {" ".join(line.split()) for line in text.splitlines()}
            # Rows have the order of a hash, and an exception its stack of Java.
            told = sorted(each for each in lines if not each.startswith("at "))
            if "--list" in arguments:
                told = [each for each in told if each.startswith(("GROUP", slug))]
            said[f"{len(said)} {' '.join(arguments)}"] = [str(done.code), *told]

        live(s, ask)
    return said


def live(s: Peer, ask: Ask) -> None:
    """Let groups of each kind come and go, and ask the tools between."""
    to, other = topic(s, partitions=4), topic(s, "other", partitions=2)
    group, empty, offsets, none = map(s.name, ("g", "empty", "offsets", "none"))

    def describe(name: str) -> None:
        for options in ((), ("--members", "--verbose"), ("--state", "--verbose")):
            ask(CONSUMER_GROUPS, "--describe", "--group", name, *options)

    for partition in range(4):
        given.records(s, to, b"a", b"b", b"c", partition=partition)
    given.member(s, "classic")
    given.committed(s, offsets, to, 1)
    s.do(join(empty, "m", to))
    s.do(given.commit(empty, to, 2, member_id="m", generation=2))
    s.do(beat(empty, "m", -1))
    s.do(join(group, "a", to, instance_id="i", rack_id="r"))
    s.do(given.commit(group, to, 1, member_id="a", generation=2))
    for name in (group, empty, offsets, none):
        describe(name)
    s.do(join(group, "b", to, other, server_assignor="range"))
    # One member has not yet given up what the other one waits for.
    describe(group)
    s.do(beat(group, "a", 2, instance_id="i"))
    s.do(beat(group, "a", 2, instance_id="i", topic_partitions=[]))
    s.do(beat(group, "b", 3))
    describe(group)
    for options in ((), ("--type", "consumer"), ("--type", "classic"), ("--state", "Stable")):
        ask(CONSUMER_GROUPS, "--list", *options)
    ask(GROUPS, "--list")
    of_topic = ("--topic", to.name)
    ask(CONSUMER_GROUPS, "--delete-offsets", "--group", group, *of_topic)
    to_earliest = ("--reset-offsets", *of_topic, "--to-earliest", "--execute", "--group")
    for name in (group, empty):
        ask(CONSUMER_GROUPS, *to_earliest, name)
    ask(CONSUMER_GROUPS, "--delete", "--group", group, "--group", empty, "--group", none)
    ask(CONSUMER_GROUPS, "--list", "--type", "consumer")
