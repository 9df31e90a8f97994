"""Broker settings from a file, the environment and options, with the defaults of the command line.

Every command that reads one broker's data must find the same settings.
"""

import os
from collections.abc import Mapping
from pathlib import Path

DEFAULT_LISTENER = "localhost:9092"
LOG_LEVELS = ("fatal", "error", "warn", "info", "debug", "trace")


def default_data_directory() -> Path:
    """Return the default log directory, under the user's state directory (XDG)."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "barnabas"


def read_properties(file: Path | None, options: Mapping[str, str]) -> dict[str, str]:
    """Merge the keys of `file`, of KAFKA_... variables and of `options`; the later ones win.

    The result always has a listener and a log directory. Raises ConfigError if the environment
    cannot be read.
    """
    from barnabas.config.properties import from_environment, parse_properties

    # java.util.Properties reads Latin-1; other characters are escaped in the file.
    properties = {} if file is None else parse_properties(file.read_text("iso-8859-1"))
    properties |= from_environment(os.environ)
    properties |= options
    properties.setdefault("listeners", f"PLAINTEXT://{DEFAULT_LISTENER}")
    if not properties.keys() & {"log.dir", "log.dirs"}:
        properties["log.dirs"] = str(default_data_directory())
    return properties
