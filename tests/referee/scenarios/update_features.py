"""UpdateFeatures: possible levels and impossible ones.

Both brokers begin and end at transaction.version 0, which other scenarios require.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.update_features import (
    API,
    FeatureUpdateKey,
    UpdateFeaturesRequest,
)
from tests.referee.scenario import Peer, Scenarios

scenario = Scenarios(API)

SAFE, UNSAFE = 2, 3
TRANSACTIONS = "transaction.version"


def change(level: int, feature: str = TRANSACTIONS, **how: Any) -> FeatureUpdateKey:
    return FeatureUpdateKey(feature=feature, max_version_level=level, **how)


def update(*changes: FeatureUpdateKey, **options: Any) -> UpdateFeaturesRequest:
    return UpdateFeaturesRequest(feature_updates=list(changes), **options)


@contextmanager
def at(s: Peer, level: int) -> Iterator[None]:
    """Set the level of transaction.version for the block."""
    s.do(update(change(level)))
    try:
        yield
    finally:
        s.do(update(change(0, upgrade_type=SAFE)))


def told(s: Peer, level: int) -> None:
    """Wait until clients are told of the level."""

    def finalized(answer: Any) -> list[int]:
        return [
            feature.max_version_level
            for feature in answer.finalized_features
            if feature.name == TRANSACTIONS
        ]

    hello = ApiVersionsRequest(client_software_name="referee", client_software_version="1")
    expected = [level] if level else []
    s.ask(hello, until=lambda answer: finalized(answer) == expected, pick=finalized)


@scenario
def up_to_the_highest_level(s: Peer) -> None:
    with at(s, 0):
        s.ask(update(change(1)))
        s.ask(update(change(2)))
        told(s, 2)


@scenario
def the_level_that_it_has(s: Peer) -> None:
    with at(s, 2):
        s.ask(update(change(2)))
        told(s, 2)


@scenario(since=1)
def the_level_that_it_has_as_a_downgrade(s: Peer) -> None:
    with at(s, 1):
        s.ask(update(change(1, upgrade_type=SAFE)))
        s.ask(update(change(1, upgrade_type=UNSAFE)))
        told(s, 1)


@scenario(since=1)
def safely_down(s: Peer) -> None:
    with at(s, 2):
        s.ask(update(change(1, upgrade_type=SAFE)))
        told(s, 1)
        s.ask(update(change(0, upgrade_type=SAFE)))
        told(s, 0)


@scenario(since=1)
def unsafely_down(s: Peer) -> None:
    with at(s, 2):
        s.ask(update(change(0, upgrade_type=UNSAFE)))
        told(s, 0)


@scenario
def down_without_permission(s: Peer) -> None:
    with at(s, 2):
        s.ask(update(change(1)))
        s.ask(update(change(0)))
        told(s, 2)


@scenario(until=0)
def permission_of_the_first_version(s: Peer) -> None:
    with at(s, 2):
        s.ask(update(change(1, allow_downgrade=True)))
        told(s, 2)


@scenario(until=0)
def up_with_permission_of_the_first_version(s: Peer) -> None:
    with at(s, 1):
        s.ask(update(change(2, allow_downgrade=True)))
        told(s, 2)


@scenario(since=1)
def up_as_a_downgrade(s: Peer) -> None:
    with at(s, 1):
        s.ask(update(change(2, upgrade_type=SAFE)))
        s.ask(update(change(2, upgrade_type=UNSAFE)))
        told(s, 1)


@scenario(since=1)
def invalid_upgrade_types(s: Peer) -> None:
    for kind in (0, 4, 127, -1, -128):
        s.ask(update(change(2, upgrade_type=kind)))
    told(s, 0)


@scenario
def levels_out_of_range(s: Peer) -> None:
    for level in (-1, -(2**15), 3, 2**15 - 1):
        s.ask(update(change(level)))
    told(s, 0)


@scenario(since=1)
def down_out_of_range(s: Peer) -> None:
    for level in (-1, -(2**15), 3):
        s.ask(update(change(level, upgrade_type=SAFE)))


@scenario
def an_unknown_feature(s: Peer) -> None:
    for level in (-1, 0, 1):
        s.ask(update(change(level, "no.such.feature")))
        s.ask(update(change(level, "")))


@scenario(since=1)
def an_unknown_feature_down(s: Peer) -> None:
    for level in (0, 1):
        s.ask(update(change(level, "no.such.feature", upgrade_type=SAFE)))


@scenario
def no_feature(s: Peer) -> None:
    s.ask(update())


@scenario
def one_of_two_is_impossible(s: Peer) -> None:
    s.ask(update(change(1), change(1, "no.such.feature")))
    s.ask(update(change(1, "no.such.feature"), change(1)))
    told(s, 0)


@scenario
def both_are_impossible(s: Peer) -> None:
    s.ask(update(change(7), change(-1, "no.such.feature")))


@scenario
def the_same_feature_twice(s: Peer) -> None:
    with at(s, 0):
        s.ask(update(change(1), change(2)))
        told(s, 2)


@scenario
def the_same_feature_twice_and_lower(s: Peer) -> None:
    with at(s, 0):
        s.ask(update(change(2), change(1)))
        told(s, 1)


@scenario
def the_same_feature_twice_once_impossible(s: Peer) -> None:
    with at(s, 0):
        s.ask(update(change(9), change(1)))
        told(s, 1)
        s.ask(update(change(2), change(9)))
        told(s, 1)


@scenario(since=1)
def a_dry_run(s: Peer) -> None:
    with at(s, 1):
        s.ask(update(change(2), validate_only=True))
        s.ask(update(change(0, upgrade_type=SAFE), validate_only=True))
        told(s, 1)


@scenario(since=1)
def a_dry_run_of_an_impossible_change(s: Peer) -> None:
    with at(s, 1):
        s.ask(update(change(3), validate_only=True))
        s.ask(update(change(0), validate_only=True))
        s.ask(update(change(1, "no.such.feature"), validate_only=True))
        s.ask(update(validate_only=True))


@scenario
def a_time_that_has_passed(s: Peer) -> None:
    s.ask(update(change(0), timeout_ms=0))
    s.ask(update(change(0), timeout_ms=-1))
