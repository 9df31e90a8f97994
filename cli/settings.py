"""What a broker of the command line is told: file, environment and options, and what holds
otherwise. Every command that looks at one broker's data must read the same."""

import os
from collections.abc import Mapping
from pathlib import Path

DEFAULT_LISTENER = "localhost:9092"


def default_data_directory() -> Path:
    """Where a broker keeps its data unless told: under the user's state directory (XDG)."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "barnabas"


def read_properties(file: Path | None, options: Mapping[str, str]) -> dict[str, str]:
    """The keys of a file, under those of KAFKA_... variables, under `options`.

    A listener and a log directory are always among them. Raises ConfigError where the environment
    cannot be read.
    """
    from barnabas.config.properties import from_environment, parse_properties

    # What java.util.Properties reads; other characters are escaped there.
    properties = {} if file is None else parse_properties(file.read_text("iso-8859-1"))
    properties |= from_environment(os.environ)
    properties |= options
    properties.setdefault("listeners", f"PLAINTEXT://{DEFAULT_LISTENER}")
    if not properties.keys() & {"log.dir", "log.dirs"}:
        properties["log.dirs"] = str(default_data_directory())
    return properties
