"""Regular expressions of subscriptions: errors in Kafka's words, and bounds."""

import sys
import time

import pytest

from barnabas.coordinator.group.consumer.expressions import compiled
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.support.machine import bound

LONGEST_NAME = "ab" * 124 + "a"


def _refused(text: str) -> str:
    with pytest.raises(KafkaError) as caught:
        compiled(text)
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert caught.value.message is not None
    return caught.value.message


def test_an_expression_matches_whole_names() -> None:
    names = ["orders", "orders-1", "my-orders", "invoices"]
    assert compiled("orders.*").matching(names) == {"orders", "orders-1"}
    assert compiled("(?i)ORDERS|in.+").matching(names) == {"orders", "invoices"}
    assert compiled("none").matching(names) == frozenset()


def test_an_invalid_expression_is_refused_with_the_text_of_kafka() -> None:
    assert _refused("(orders") == (
        "SubscribedTopicRegex `(orders` is not a valid regular expression: missing closing )."
    )
    assert _refused("a**").endswith(
        "`a**` is not a valid regular expression: invalid nested repetition operator."
    )
    assert _refused("\ud800").endswith("invalid UTF-8.")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x" * 4097, "it has more than 4096 bytes."),
        ("é" * 2049, "it has more than 4096 bytes."),
        ("x" * (100 << 20), "it has more than 4096 bytes."),
        (r"\pL" * 129, r"it has more than 128 classes \p and counted repeats."),
        ("(a{1000}b?)" * 128, "pattern too large - compile failed."),
        (r"(\pL{30}){30}" * 40, "pattern too large - compile failed."),
    ],
    ids=["long", "long in bytes", "huge", "classes", "repeats", "nested repeats"],
)
def test_an_expression_that_is_too_large_is_refused_at_once(text: str, reason: str) -> None:
    start = time.process_time()
    message = _refused(text)
    assert time.process_time() - start < 0.5
    assert message.endswith(reason)
    assert len(message) < 500


@pytest.mark.parametrize(
    "text",
    [
        "(a*)+" * 800,
        "(" * 900 + "a" * 2000 + ")" * 900,
        "(.*a.{60}){3}",
        "((((.*a)*b)*a)*b)*" * 200,
    ],
    ids=["groups", "nested groups", "states", "alternatives"],
)
def test_no_expression_takes_long_for_a_name(text: str) -> None:
    expression = compiled(text)
    start = time.process_time()
    for _ in range(20):
        expression.matches(LONGEST_NAME)
    assert (time.process_time() - start) / 20 < bound(0.05)


def test_expressions_in_memory_are_bounded() -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(128):
        compiled(f"(a*)+(.*a.{{60}}){{3}}{number}").matches(LONGEST_NAME)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 128 << 10  # KB


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    assert _refused("a.*") == (
        "SubscribedTopicRegex `a.*` needs google-re2 on the broker: pip install 'barnabas[re2]'"
    )
