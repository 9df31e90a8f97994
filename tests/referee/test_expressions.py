"""Subscriptions by expression match, and fail, as with the RE2/J of Apache Kafka."""

from collections.abc import Iterator

import pytest

from barnabas.coordinator.expressions import ExpressionError, compiled
from tests.support.kafka import jvm
from tests.support.kafka.resident import Resident

NAMES = ["a", "A", "abc", "ABC", "a-b.c_d", "orders", "orders-1", "orders-22", "x.y", "__o", "aaa"]

ALIKE = r"""
orders.* orders-\d+ (?i)ORDERS ^abc$ abc|orders [a-c]+ [^a]* a?b?c? \w+ \W* . a{3} a{,2} a{2,}
(a|b)*c (?:a)bc (?P<n>a) (?<n>a) (?s).+ \pL+ \p{Lu}+ [[:alpha:]]+ [[:^word:]] \Qx.y\E \x41 \x{61}
\101 \Aa\z \ba\b x*? () (|a) []a]+ [a-]+ a.*?c \. .*\..* a| (?i:a) (?-i)a (?U)a+ ((((a)))) [\d\-]+
\s* \bo.* ( (abc [a [^ a\ *a a|* a{1001} a{2,1} a** a++ a{2}{3} (?i (?P<n (?<n [z-a] \q [[:foo:]]
(?=a) (?!a) \p{Foo} (?z) \Z \1 \u0041 [a-\d] (?P=n) \e \cA ?
"""
"""Expressions that both take, or refuse with the same words."""


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Resident]:
    with jvm.start(tmp_path_factory.mktemp("java") / "errors") as resident:
        yield resident


def _ours(expression: str) -> list[str] | str:
    try:
        found = compiled(expression)
    except ExpressionError as error:
        return str(error)
    return [name for name in NAMES if found.matches(name)]


@pytest.mark.parametrize("expression", [*ALIKE.split(), ""])
def test_an_expression_matches_or_fails_as_in_kafka(java: Resident, expression: str) -> None:
    assert _ours(expression) == java.call("matching", expression=expression, names=NAMES)


@pytest.mark.parametrize(
    ("expression", "ours", "kafkas"),
    [
        ("abc)", "unexpected )", "regexp/syntax: internal error"),
        ("\\C", ["a", "A"], "invalid escape sequence"),
        ("((a{100}){100}){100}", "invalid repeat count", []),
        ("(\\pL)" * 200, "it has more than 128 classes \\p and counted repeats", []),
    ],
)
def test_differences_of_both_engines(
    java: Resident, expression: str, ours: list[str] | str, kafkas: list[str] | str
) -> None:
    assert _ours(expression) == ours
    assert java.call("matching", expression=expression, names=NAMES) == kafkas
