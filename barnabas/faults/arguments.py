"""Checks of arguments: a wrong one is an error at the call, not a lever without effect."""

import math
from typing import Any


def check_number(name: str, value: Any, least: int) -> None:
    """Raise TypeError if a value is not a whole number, ValueError if it is less than `least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is a whole number, not {value!r}")
    if value < least:
        raise ValueError(f"{name} is at least {least}, not {value}")


def check_seconds(name: str, value: Any) -> None:
    """Raise TypeError if a value is not a number, ValueError if it is negative or infinite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is a number of seconds, not {value!r}")
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} is 0 s or more, not {value}")


def check_text(name: str, value: Any) -> None:
    """Raise TypeError if a value is not a text."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is a text, not {value!r}")
