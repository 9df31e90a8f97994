"""How log lines look, and how loud each part of the broker is.

A line is an event and values by name, given to the standard library's logger of the module:

    _log = get_logger(__name__)
    _log.warning("connection refused", host=host, listener=name)

Where a broker runs inside somebody's tests, that is all: the lines are in their logs, and none of
their settings is touched. A broker of its own calls `configure`, and every line of the process is
one JSON object, or on a terminal what structlog makes of it. Levels are changed while the broker
runs through Kafka's BROKER_LOGGER resource (KIP-412).
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


class Event:
    """The message of a record: loggers that know nothing of events print it as one line."""

    __slots__ = ("name", "values")

    def __init__(self, name: str, values: dict[str, object]) -> None:
        self.name = name
        self.values = values

    def __str__(self) -> str:
        return " ".join((self.name, *(f"{key}={value!r}" for key, value in self.values.items())))


class EventLogger:
    """Logs events with values. An `exc_info` among them is an error whose traceback is wanted."""

    __slots__ = ("_logger",)

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, event: str, **values: object) -> None:
        """What only somebody who looks for a fault wants to read."""
        self._log(logging.DEBUG, event, values)

    def info(self, event: str, **values: object) -> None:
        """Something that happens seldom and as it should."""
        self._log(logging.INFO, event, values)

    def warning(self, event: str, **values: object) -> None:
        """Something that a person may want to change."""
        self._log(logging.WARNING, event, values)

    def error(self, event: str, **values: object) -> None:
        """Something that failed."""
        self._log(logging.ERROR, event, values)

    def critical(self, event: str, **values: object) -> None:
        """Something after which the broker cannot go on."""
        self._log(logging.CRITICAL, event, values)

    def _log(self, level: int, event: str, values: dict[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            error: Any = values.pop("exc_info", None)
            # The caller's caller logged it, says the record.
            self._logger.log(level, Event(event, values), exc_info=error, stacklevel=3)


def get_logger(name: str) -> EventLogger:
    """The logger of a module."""
    return EventLogger(logging.getLogger(name))


def configure(
    stream: TextIO | None = None,
    *,
    level: str = "INFO",
    always: Mapping[str, object] = MappingProxyType({}),
) -> logging.Handler:
    """Send every log line of the process to `stream`, by default standard error.

    `level` is one of Kafka's, in any case; ConfigError where it is none. Every line has the values
    of `always`. Returns the handler, for its removal.
    """
    if level.upper() not in _LEVELS:
        raise ConfigError(f"{level} is no log level. Valid log levels are {', '.join(_LEVELS)}")
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    render = _terminal_renderer() if stream.isatty() else _json
    handler.setFormatter(_LineFormatter(render, always))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(_LEVELS[level.upper()])
    return handler


class _LineFormatter(logging.Formatter):
    """Gives a record's event, values and circumstances to `render`, its control characters shown.

    Clients choose client ids and topics: what they chose is not to be obeyed.
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
            "event": event.name if isinstance(event, Event) else record.getMessage(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "timestamp": _utc(record.created),
            **self._always,
        }
        line |= event.values if isinstance(event, Event) else _extra(record)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return self._render({key: _shown(key, value) for key, value in line.items()})


_STANDARD: Final = {*vars(logging.makeLogRecord({})), "message", "asctime"}


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    """What a logger that knows nothing of events gave as `extra`."""
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


def _utc(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")
    return moment.replace("+00:00", "Z")


def _shown(key: str, value: object) -> object:
    if not isinstance(value, str):
        return value
    # A traceback keeps its lines; what a client put into its message cannot add any.
    pattern = _CONTROL_BUT_NEWLINE if key in ("exception", "stack") else _CONTROL
    return pattern.sub(lambda found: repr(found[0])[1:-1], value)


def _json(line: dict[str, Any]) -> str:
    return json.dumps(line, default=repr)


def _terminal_renderer() -> Callable[[dict[str, Any]], str]:
    # Here and not above: it brings all of rich, a sixth of the time a broker takes to start.
    from structlog.dev import ConsoleRenderer, plain_traceback

    console = ConsoleRenderer(exception_formatter=plain_traceback)
    return lambda line: console(None, "", line)


class LoggerLevels:
    """The levels of the loggers, as the BROKER_LOGGER resource shows and changes them."""

    def levels(self) -> dict[str, str]:
        """The level in force of every logger, by name."""
        named = sorted(logging.root.manager.loggerDict.items())
        return {ROOT: _level_name(logging.root.level)} | {
            name: _level_name(logger.getEffectiveLevel())
            for name, logger in named
            if isinstance(logger, logging.Logger)
        }

    def check(self, changes: Iterable[tuple[str, str | None]]) -> None:
        """ConfigError where one of the changes, name and level, cannot be made."""
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
        """Set a checked level; None lets the logger inherit again."""
        logger = logging.getLogger(None if name == ROOT else name)
        logger.setLevel(logging.NOTSET if level is None else _LEVELS[level])


def _level_name(level: int) -> str:
    """The loudest of Kafka's levels that a threshold lets through."""
    return next((name for name, limit in _LEVELS.items() if level >= limit), "TRACE")
