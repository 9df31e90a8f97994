"""HTML from templates. Everything that comes from the cluster is escaped."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from barnabas.operations import quantities

NONE: Final = "\N{EN DASH}"
"""The text of a value that does not exist."""


def shown(value: Any) -> Any:
    """Return a text with its control and direction characters visible; other values unchanged.

    Such characters could otherwise make one name look like another.
    """
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return "".join(
        each if each.isprintable() or each in "\n\t" else f"\\u{{{ord(each):x}}}" for each in value
    )


def exact(text: str) -> Markup:
    """Return a text that a form sends back as it is: escaped, without visible controls."""
    return escape(text)


def url(path: str, /, **parameters: Any) -> str:
    """Return an address within the console; parameters that are None are left out."""
    given = {name: value for name, value in parameters.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def time_text(at_ms: int | None) -> str:
    """Return a time in UTC, or a dash."""
    if at_ms is None or at_ms < 0:
        return NONE
    try:
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"
    return moment.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")


def number(value: int | None) -> Markup:
    """Return a number with separated thousands, or a dash for None."""
    text = NONE if value is None else f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    # As Markup, because this space is not printable for `shown`.
    return Markup(text)


def counted(value: int, noun: str) -> Markup:
    """Return a number with its noun: 1 record, 2 records."""
    return number(value) + f" {noun}{'' if value == 1 else 's'}"


def size(value: int | None) -> str:
    """Return a number of bytes with its unit, or a dash for None and -1."""
    return NONE if value is None or value < 0 else quantities.size_text(value)


def per_second(value: float | None) -> str:
    """Return a rate, or a dash for None."""
    if value is None:
        return NONE
    return number(round(value)) + " /s" if value >= 10 else f"{value:.2g} /s"


def bytes_per_second(value: float | None) -> str:
    """Return a rate of bytes, or a dash for None."""
    return NONE if value is None else f"{quantities.size_text(round(value))}/s"


def duration(value_ms: int | None) -> str:
    """Return a duration, or a dash for None and -1."""
    return NONE if value_ms is None or value_ms < 0 else quantities.duration_text(value_ms)


class Renderer:
    """The templates, with what every page shows."""

    def __init__(self, shared: Mapping[str, Any]) -> None:
        self._templates = Environment(
            loader=PackageLoader("barnabas.console"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=shown,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._templates.globals.update(shared)
        self._templates.globals.update(url=url, NONE=NONE)
        self._templates.filters.update(
            exact=exact,
            number=number,
            counted=counted,
            time=time_text,
            size=size,
            duration=duration,
            per_second=per_second,
            bytes_per_second=bytes_per_second,
        )

    def page(self, template: str, values: Mapping[str, Any]) -> str:
        """Return a page as text."""
        return self._templates.get_template(template).render(values)
