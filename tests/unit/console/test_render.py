"""Numbers and rates as pages show them, behind the filter that makes odd characters visible."""

import pytest

from barnabas.console.render import NONE, counted, number, per_second, shown


@pytest.mark.parametrize(
    ("value", "text"), [(None, NONE), (0, "0"), (999, "999"), (12_345_678, "12 345 678")]
)
def test_number_has_separated_thousands(value: int | None, text: str) -> None:
    assert shown(number(value)).replace("\N{NARROW NO-BREAK SPACE}", " ") == text


def test_noun_of_a_number_is_escaped() -> None:
    assert shown(counted(1000, "<b>")).replace("\N{NARROW NO-BREAK SPACE}", " ") == (
        "1 000 &lt;b&gt;s"
    )
    assert counted(1, "group") == "1 group"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, NONE), (0.0, "0 /s"), (0.25, "0.25 /s"), (9.96, "10 /s"), (1234.5, "1 234 /s")],
)
def test_rate_has_few_digits(value: float | None, text: str) -> None:
    assert shown(per_second(value)).replace("\N{NARROW NO-BREAK SPACE}", " ") == text
