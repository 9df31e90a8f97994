"""Numbers as pages show them, behind the filter that makes odd characters visible."""

import pytest

from barnabas.console.render import NONE, counted, number, shown


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
