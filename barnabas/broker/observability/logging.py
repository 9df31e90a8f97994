"""The format of log lines, and the level of each logger.

A line is an event with named values, passed to the standard library's logger of the module:

    _log = get_logger(__name__)
    _log.warning("connection refused", host=host, listener=name)

A broker inside the process of a test does nothing else, so the test's logging settings stay. The
process of a broker calls `configure`: every line is one JSON object, or a line in structlog's
format, by default on a terminal. Kafka's BROKER_LOGGER resource changes levels at run time
(KIP-412).
"""

import json
import logging
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, TextIO

from barnabas.config.key import ConfigError

ROOT: Final = "root"
"""Kafka's name for the logger that all others inherit from."""

CONSOLE, JSON = "console", "json"
"""The forms of lines: for people, and for programs."""
_LEVELS: Final = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_CONTROL_BUT_NEWLINE: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")


class LogEvent:
    """The message of a record. Loggers that do not know events print it as one line."""

    __slots__ = ("name", "values")

    def __init__(self, name: str, values: dict[str, object]) -> None:
        self.name = name
        self.values = values

    def __str__(self) -> str:
        return " ".join((self.name, *(f"{key}={value!r}" for key, value in self.values.items())))


class EventLogger:
    """A logger of events with values. An `exc_info` value is an error whose traceback is logged."""

    __slots__ = ("_logger",)

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, event: str, **values: object) -> None:
        """Log details for the search of a fault."""
        self._log(logging.DEBUG, event, values)

    def info(self, event: str, **values: object) -> None:
        """Log a rare and normal event."""
        self._log(logging.INFO, event, values)

    def warning(self, event: str, **values: object) -> None:
        """Log an event that an operator may want to act on."""
        self._log(logging.WARNING, event, values)

    def error(self, event: str, **values: object) -> None:
        """Log a failure."""
        self._log(logging.ERROR, event, values)

    def critical(self, event: str, **values: object) -> None:
        """Log an error after which the broker cannot continue."""
        self._log(logging.CRITICAL, event, values)

    def log(self, level: int, event: str, **values: object) -> None:
        """Log an event at a level of the standard library."""
        self._log(level, event, values)

    def _log(self, level: int, event: str, values: dict[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            error: Any = values.pop("exc_info", None)
            # Makes the record name the caller of this method's caller.
            self._logger.log(level, LogEvent(event, values), exc_info=error, stacklevel=3)


def get_logger(name: str) -> EventLogger:
    """Return the logger of a module."""
    return EventLogger(logging.getLogger(name))


def configure(
    stream: TextIO | None = None,
    *,
    level: str = "INFO",
    form: str | None = None,
    always: Mapping[str, object] = MappingProxyType({}),
) -> logging.Handler:
    """Send every log line of the process to `stream`, by default standard error.

    `level` is one of Kafka's, in any case; ConfigError otherwise. `form` is CONSOLE or JSON; None
    is CONSOLE on a terminal. Every line has the values of `always`. Return the handler, so that it
    can be removed.
    """
    if level.upper() not in _LEVELS:
        raise ConfigError(f"{level} is no log level. Valid log levels are {', '.join(_LEVELS)}")
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    terminal = stream.isatty()
    for_people = form == CONSOLE or (form is None and terminal)
    render = _console_renderer(colors=terminal) if for_people else _json
    handler.setFormatter(_LineFormatter(render, always))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(_LEVELS[level.upper()])
    return handler


class _LineFormatter(logging.Formatter):
    """A formatter that passes event, values and context to `render`, control characters escaped.

    Clients choose client ids and topic names, which must not control a terminal.
    """

    def __init__(
        self, render: Callable[[dict[str, Any]], str], always: Mapping[str, object]
    ) -> None:
        super().__init__()
        self._render = render
        self._always = always

    def format(self, record: logging.LogRecord) -> str:
        event = record.msg
        line: dict[str, Any] = {
            "event": event.name if isinstance(event, LogEvent) else record.getMessage(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "timestamp": _utc(record.created),
            **self._always,
        }
        line |= event.values if isinstance(event, LogEvent) else _extra(record)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return self._render({key: _shown(key, value) for key, value in line.items()})


_STANDARD: Final = {*vars(logging.makeLogRecord({})), "message", "asctime"}


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    """Return the `extra` values of a record whose logger does not know events."""
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


def _utc(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")
    return moment.replace("+00:00", "Z")


def _shown(key: str, value: object) -> object:
    if not isinstance(value, str):
        return value
    # A traceback keeps its lines; a client's text in its message cannot add any.
    pattern = _CONTROL_BUT_NEWLINE if key in ("exception", "stack") else _CONTROL
    return pattern.sub(lambda found: repr(found[0])[1:-1], value)


def _json(line: dict[str, Any]) -> str:
    return json.dumps(line, default=repr)


def _console_renderer(*, colors: bool) -> Callable[[dict[str, Any]], str]:
    # Imported here: it imports all of rich, a sixth of a broker's start time.
    from structlog.dev import ConsoleRenderer, plain_traceback

    console = ConsoleRenderer(colors=colors, exception_formatter=plain_traceback)
    return lambda line: console(None, "", line)


class LoggerLevels:
    """The levels of the loggers, which the BROKER_LOGGER resource shows and changes."""

    def levels(self) -> dict[str, str]:
        """Return the effective level of every logger, by name."""
        named = sorted(logging.root.manager.loggerDict.items())
        return {ROOT: _level_name(logging.root.level)} | {
            name: _level_name(logger.getEffectiveLevel())
            for name, logger in named
            if isinstance(logger, logging.Logger)
        }

    def check(self, changes: Iterable[tuple[str, str | None]]) -> None:
        """Raise ConfigError if one of the changes, name and level, is impossible."""
        known = self.levels()
        for name, level in changes:
            if name not in known:
                raise ConfigError(f"Logger {name} does not exist!")
            if level is not None and level not in _LEVELS:
                raise ConfigError(
                    f"Cannot set the log level of {name} to {level} as it is not a supported log "
                    f"level. Valid log levels are {', '.join(_LEVELS)}"
                )

    def change(self, name: str, level: str | None) -> None:
        """Set a checked level; None makes the logger inherit again."""
        logger = logging.getLogger(None if name == ROOT else name)
        logger.setLevel(logging.NOTSET if level is None else _LEVELS[level])


def _level_name(level: int) -> str:
    """Return the most verbose of Kafka's levels that a threshold lets through."""
    return next((name for name, limit in _LEVELS.items() if level >= limit), "TRACE")
