"""Options as Spark gives them: their names and values, refused in one line.

Spark gives options as text under names in any case. A refusal says what to do.
"""

import re
from collections.abc import Iterable, Mapping

from barnabas.config.spelling import closest
from barnabas.pipeline.errors import OneLineError

_DURATION = re.compile(r"(-?\d+)\s*([a-z]*)")
_MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_LONGEST_VALUE = 100


class OptionError(OneLineError, ValueError):
    """An option that cannot be used; its text is one line that says what to do."""


class Options:
    """The options of one reader or writer, whose names are all known.

    `known` has the names as the documentation spells them. `advice` has, for names that Kafka or
    the stock connector knows and that have no effect here, the words that say what to do.
    """

    def __init__(
        self,
        given: Mapping[str, str],
        known: Iterable[str],
        advice: Mapping[str, str] | None = None,
    ) -> None:
        """Raise OptionError for the first name that is not known."""
        self._values = {name.lower(): value for name, value in given.items()}
        self._names = {name.lower(): name for name in known}
        self._advice = {name.lower(): text for name, text in (advice or {}).items()}
        for name in sorted(self._values):
            if name not in self._names:
                self._refuse(name)

    def _refuse(self, name: str) -> None:
        if name in self._advice:
            raise OptionError(f"{name} has no effect here: {self._advice[name]}")
        raise OptionError(f"unknown option {name}: {nearest(name, self._names.values())}")

    def spelled(self, name: str) -> str | None:
        """Return an option's text without space around it, None if it is not given."""
        value = self._values.get(name.lower())
        return None if value is None else value.strip()

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def required(self, name: str, example: str) -> str:
        """Return an option that must be given; the error shows the example."""
        value = self.spelled(name)
        if not value:
            raise OptionError(f"option {name} is missing: give e.g. .option({name!r}, {example!r})")
        return value

    def boolean(self, name: str, default: bool) -> bool:
        """Return `true` or `false`, in any case."""
        value = self.spelled(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise self.bad(name, "give true or false")
        return value.lower() == "true"

    def number(self, name: str, *, low: int = 1, high: int = 2**63 - 1) -> int | None:
        """Return a whole number in a range, None if it is not given."""
        value = self.spelled(name)
        if value is None:
            return None
        if not re.fullmatch(r"[+-]?\d{1,20}", value, re.ASCII) or not low <= int(value) <= high:
            raise self.bad(name, f"give a whole number from {low} to {high}")
        return int(value)

    def milliseconds(self, name: str, default: int) -> int:
        """Return a duration in ms, written as Spark does: `500ms`, `30s`, `15m`, `2h`, `1d`.

        A number alone is in ms.
        """
        value = self.spelled(name)
        if value is None:
            return default
        found = _DURATION.fullmatch(value.lower())
        unit = found and (found[2] or "ms")
        if not found or unit not in _MILLISECONDS or len(found[1]) > 15 or int(found[1]) < 0:
            raise self.bad(name, "give a duration such as 500ms, 30s, 15m or 2h")
        return int(found[1]) * _MILLISECONDS[unit]

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        """Return one of several words, in lower case."""
        value = self.spelled(name)
        if value is None:
            return default
        if value.lower() not in choices:
            raise self.bad(name, f"give {' or '.join(choices)}")
        return value.lower()

    def bad(self, name: str, advice: str) -> OptionError:
        """Return the error of an option whose value cannot be used."""
        value = " ".join(str(self.spelled(name)).split())
        if len(value) > _LONGEST_VALUE:
            value = value[:_LONGEST_VALUE] + "..."
        return OptionError(f"option {self._names[name.lower()]} is {value!r}: {advice}")


def nearest(name: str, names: Iterable[str]) -> str:
    """Return the words that point to the name that was probably meant."""
    spelled = {each.lower(): each for each in names}
    wanted = name.lower()
    if f"kafka.{wanted}" in spelled:
        return f"did you mean {spelled[f'kafka.{wanted}']}?"
    if close := closest(wanted, spelled, 0.6):
        return f"did you mean {spelled[close]}?"
    return f"remove it; the options are {', '.join(sorted(spelled.values()))}"
