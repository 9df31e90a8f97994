"""How log lines look, and how loud each part of the broker is.

Lines of structlog and of the standard library take the same way: through the logger of their name,
whose level decides, to one handler, in which structlog renders them: readable on a terminal, one
JSON object each elsewhere. Levels are changed while the broker runs through Kafka's BROKER_LOGGER
resource (KIP-412).
"""

import logging
import re
import sys
from collections.abc import Iterable
from typing import Final, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

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


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """The logger of a module: an event, and values by name.

    It hands lines to the standard library's logger of that name and reads nothing of structlog's
    global configuration: that belongs to the program around us, when a broker runs inside a test.
    """
    logger: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        context_class=dict,
    )
    return logger


def configure(stream: TextIO | None = None, *, level: str = "INFO") -> logging.Handler:
    """Send every log line of the process to `stream`, by default standard error.

    `level` is one of Kafka's, in any case; ConfigError where it is none. Returns the handler, for
    its removal.
    """
    if level.upper() not in _LEVELS:
        raise ConfigError(f"{level} is no log level. Valid log levels are {', '.join(_LEVELS)}")
    stream = stream or sys.stderr
    renderer: Processor = (
        structlog.dev.ConsoleRenderer() if stream.isatty() else structlog.processors.JSONRenderer()
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder()],
            processors=[
                structlog.stdlib.add_log_level,
                structlog.stdlib.add_logger_name,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                escape_control_characters,
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(_LEVELS[level.upper()])
    return handler


def escape_control_characters(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Show control characters instead of obeying them: clients choose client ids and topics."""
    for key, value in event.items():
        if isinstance(value, str):
            # A traceback keeps its lines; what a client put into its message cannot add any.
            pattern = _CONTROL_BUT_NEWLINE if key == "exception" else _CONTROL
            event[key] = pattern.sub(lambda found: repr(found[0])[1:-1], value)
    return event


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
            if level is None and name == ROOT:
                raise ConfigError("Removing the log level of the root logger is not allowed")
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
