"""Config providers: secrets of a file that stand elsewhere (KIP-297, KIP-421, KIP-887).

    config.providers=env,file
    config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
    config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
    sasl.jaas.config=... password="${env:PASSWORD}";
    ssl.key.password=${file:/run/secrets/tls.properties:key.password}

The three providers of Kafka are read as it reads them: a text that takes the place of a reference
is not searched for others. But what Kafka leaves as it is, and uses as a password, is an error: a
reference without a value, and a provider without its class.
"""

import os
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from barnabas.config.key import ConfigError
from barnabas.config.properties import parse_properties
from barnabas.config.references import REFERENCE
from barnabas.security.tls import read_file

_PROVIDERS: Final = "config.providers"
_PACKAGE: Final = "org.apache.kafka.common.config.provider"
_ALLOWED_PATHS: Final = "allowed.paths"
_PATTERN: Final = "allowlist.pattern"

Get = Callable[[str, str], str]
"""A provider: the value of a path and a key; ConfigError without one."""


class _Provider(NamedTuple):
    """A class of Kafka: the names of its parameters, and the function of their values."""

    parameters: tuple[str, ...]
    make: Callable[[Mapping[str, str]], Get]


def replace_references(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the keys without `config.providers...`, with the values that references stand for.

    Raises ConfigError, whose text has the key and the reference, but no secret.
    """
    return replace_with(providers_of(properties), properties)


def providers_of(properties: Mapping[str, str]) -> dict[str, Get]:
    """Return the providers that these keys define, by name. Raises ConfigError."""
    names = filter(None, map(str.strip, properties.get(_PROVIDERS, "").split(",")))
    return {name: _provider(name, properties) for name in names}


def replace_with(providers: Mapping[str, Get], properties: Mapping[str, str]) -> dict[str, str]:
    """Return the keys as `replace_references` does, with the providers of other keys as well."""
    return {
        name: _replaced(providers, name, text)
        for name, text in properties.items()
        if name != _PROVIDERS and not name.startswith(f"{_PROVIDERS}.")
    }


def _provider(name: str, properties: Mapping[str, str]) -> Get:
    key = f"{_PROVIDERS}.{name}.class"
    text = properties.get(key, "").strip()
    if text not in _CLASSES:
        raise ConfigError.invalid(key, text, f"Supported are {', '.join(_CLASSES)}")
    prefix = f"{_PROVIDERS}.{name}.param."
    given = {
        each.removeprefix(prefix): value.strip()
        for each, value in properties.items()
        if each.startswith(prefix)
    }
    known, make = _CLASSES[text]
    if unknown := sorted(given.keys() - {*known}):
        raise ConfigError(f"{prefix}{unknown[0]} is unknown; the provider has {', '.join(known)}")
    try:
        return make(given)
    except ConfigError as error:
        raise ConfigError(f"{prefix}{error}") from None


def _replaced(providers: Mapping[str, Get], name: str, text: str) -> str:
    def value(found: re.Match[str]) -> str:
        get = providers.get(found["provider"])
        if get is None:
            return found[0]
        try:
            return get(found["path"] or "", found["key"])
        except ConfigError as error:
            raise ConfigError(f"{name}: {found[0]} has no value: {error}") from None

    return REFERENCE.sub(value, text) if "${" in text else text


def _of_environment(given: Mapping[str, str]) -> Get:
    try:
        allowed = re.compile(given.get(_PATTERN, ".*"), re.DOTALL)
    except re.error as error:
        raise ConfigError(f"{_PATTERN} is no regular expression: {error}") from None

    def get(path: str, key: str) -> str:
        if path:
            raise ConfigError("variables have no path, write ${env:VARIABLE}")
        if not allowed.fullmatch(key):
            raise ConfigError(f"{_PATTERN} does not allow the variable")
        if key not in os.environ:
            raise ConfigError("set the environment variable")
        return os.environ[key]

    return get


def _of_file(given: Mapping[str, str]) -> Get:
    check = _check_of(given)

    def get(path: str, key: str) -> str:
        found = parse_properties(_read(check(path))) if path else {}
        if key not in found:
            raise ConfigError("the file has no such key, write ${file:PATH:KEY}")
        return found[key]

    return get


def _of_directory(given: Mapping[str, str]) -> Get:
    check = _check_of(given)

    def get(path: str, key: str) -> str:
        file = os.path.join(check(path), key)
        if not path or key != os.path.basename(key) or not os.path.isfile(file):
            raise ConfigError("there is no such file, write ${dir:DIRECTORY:FILE}")
        # Most editors and `echo` end a file with a line break, which is not part of the secret.
        return _read(file).removesuffix("\n").removesuffix("\r")

    return get


def _check_of(given: Mapping[str, str]) -> Callable[[str], str]:
    """Return the function that refuses a path outside of `allowed.paths`."""
    allowed = [each.strip() for each in given.get(_ALLOWED_PATHS, "").split(",") if each.strip()]
    for each in allowed:
        if not os.path.isabs(each) or not os.path.exists(each):
            raise ConfigError(f"{_ALLOWED_PATHS}: {each} is no absolute path that exists")

    def check(path: str) -> str:
        whole = os.path.normpath(path)
        if allowed and not any(_is_in(whole, os.path.normpath(each)) for each in allowed):
            raise ConfigError(f"{_ALLOWED_PATHS} does not allow the path")
        return whole if allowed else path

    return check


def _is_in(path: str, directory: str) -> bool:
    return path == directory or path.startswith(os.path.join(directory, ""))


def _read(path: str) -> str:
    try:
        return read_file(path).decode()
    except OSError as error:
        raise ConfigError(f"the file cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError("the file is not UTF-8") from None


_CLASSES: Final = {
    f"{_PACKAGE}.EnvVarConfigProvider": _Provider((_PATTERN,), _of_environment),
    f"{_PACKAGE}.FileConfigProvider": _Provider((_ALLOWED_PATHS,), _of_file),
    f"{_PACKAGE}.DirectoryConfigProvider": _Provider((_ALLOWED_PATHS,), _of_directory),
}
