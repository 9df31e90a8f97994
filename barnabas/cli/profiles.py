"""Profiles: the servers and the security keys of clusters, by name, in the user's directory.

A profile is a file with Kafka's client keys, as --command-config takes it. It may have passwords:
only its owner can read it.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from barnabas.cli.files import replace_file
from barnabas.config.properties import parse_properties

_SUFFIX: Final = ".properties"
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_FILES: Final = re.compile(r"\.location$|\.file$")
"""Keys that name a file, whose path has to hold in every directory."""
_SECRETS: Final = re.compile(
    r"password|passphrase|secret|jaas\.config|oauthbearer\.config|basic\.auth\.user\.info|"
    r"auth\.token|keystore\.key$|\.pem$"
)
"""Keys with secrets, also those that only other clients know."""


def directory() -> Path:
    """Return the directory of the profiles, by the XDG base directory specification."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):
        # The specification says that relative paths are ignored. A user may have no home.
        base = os.path.expanduser("~/.config")
    return Path(base) / "barnabas" / "profiles"


def names() -> list[str]:
    """Return the names of all profiles."""
    return sorted(path.stem for path in directory().glob(f"*{_SUFFIX}"))


def in_use() -> str | None:
    """Return the profile of BARNABAS_PROFILE or of `profile use`; None without one."""
    given = os.environ.get("BARNABAS_PROFILE")
    if given is not None:
        return given or None
    try:
        return _choice().read_text(encoding="utf-8").strip() or None
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None


def use(name: str | None) -> None:
    """Use a profile from now on; None for none. Raises ClickException if it does not exist."""
    if name is None:
        _choice().unlink(missing_ok=True)
        return
    read(name)
    _write(_choice(), f"{name}\n")


def read(name: str) -> dict[str, str]:
    """Return the keys of a profile; raises ClickException if it does not exist."""
    try:
        return parse_properties(_path(name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise click.ClickException(f"no profile {name}; see `barnabas profile list`") from None


def create(name: str, properties: Mapping[str, str]) -> None:
    """Write a profile; raises ClickException if it exists or has another name than a file may."""
    if name in names():
        raise click.ClickException(f"profile {name} exists already")
    replace(name, properties)


def replace(name: str, properties: Mapping[str, str]) -> None:
    """Write the keys of a profile; paths of files become absolute."""
    whole = {
        key: os.path.abspath(text) if _FILES.search(key) and text else text
        for key, text in properties.items()
    }
    _write(_path(name), text_of(whole))


def text_of(properties: Mapping[str, str]) -> str:
    """Return keys as the text of a properties file, a line each, by name."""
    return "".join(
        f"{_escaped(key)}={_escaped(text)}\n" for key, text in sorted(properties.items())
    )


def without_secrets(properties: Mapping[str, str]) -> dict[str, str]:
    """Return keys with (hidden) for passwords; references to config providers stay."""
    return {
        key: "(hidden)" if _SECRETS.search(key) and not text.startswith("${") else text
        for key, text in properties.items()
    }


def delete(name: str) -> None:
    """Delete a profile, and use none if it was in use; raises ClickException without it."""
    read(name)
    _path(name).unlink()
    if in_use() == name:
        use(None)


def _choice() -> Path:
    return directory().parent / "profile"


def _path(name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise click.ClickException(f"{name!r} is no name of a profile: letters, digits, ., _ and -")
    return directory() / f"{name}{_SUFFIX}"


def _escaped(text: str) -> str:
    r"""Escape what ends or begins a key or a value of a properties file."""
    return re.sub(r"[\\=:\s#!]", _escape, text)


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    if character in "\\=:#! ":
        return f"\\{character}"
    return f"\\u{ord(character):04x}"


def _write(path: Path, text: str) -> None:
    """Replace a file; only its owner can read it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    replace_file(path, text.encode())
