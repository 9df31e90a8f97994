"""How a table declares its keys: one function per type of value, with the range it allows."""

from barnabas.config.key import Check, ConfigError, Key, Type, Update


def boolean(default: bool, doc: str, *, update: Update = Update.READ_ONLY) -> Key[bool]:
    """`true` or `false`, in any case."""
    return Key(Type.BOOLEAN, default, doc, update)


def integer(
    default: int,
    doc: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    check: Check | None = None,
    update: Update = Update.READ_ONLY,
) -> Key[int]:
    """A whole number of 32 bits; `check` takes the place of a plain range."""
    valid = _range_text(at_least, at_most)
    return Key(Type.INT, default, doc, update, check or _range(at_least, at_most), valid)


def short(
    default: int, doc: str, *, at_least: float, update: Update = Update.READ_ONLY
) -> Key[int]:
    """A whole number of 16 bits."""
    check, valid = _range(at_least, None), _range_text(at_least, None)
    return Key(Type.SHORT, default, doc, update, check, valid)


def long(
    default: int, doc: str, *, at_least: float | None = None, update: Update = Update.READ_ONLY
) -> Key[int]:
    """A whole number of 64 bits."""
    check, valid = _range(at_least, None), _range_text(at_least, None)
    return Key(Type.LONG, default, doc, update, check, valid)


def double(
    default: float,
    doc: str,
    *,
    at_least: float,
    at_most: float | None = None,
    update: Update = Update.READ_ONLY,
) -> Key[float]:
    """A floating-point number of 64 bits."""
    check, valid = _range(at_least, at_most), _range_text(at_least, at_most)
    return Key(Type.DOUBLE, default, doc, update, check, valid)


def string(
    default: str,
    doc: str,
    *,
    one_of: tuple[str, ...] = (),
    update: Update = Update.READ_ONLY,
) -> Key[str]:
    """A text, one of `one_of` where that is given."""
    check = _one_of(one_of) if one_of else None
    return Key(Type.STRING, default, doc, update, check, _choices(one_of))


def names(
    default: tuple[str, ...],
    doc: str,
    *,
    one_of: tuple[str, ...] = (),
    may_be_empty: bool = True,
    check: Check | None = None,
    update: Update = Update.READ_ONLY,
) -> Key[tuple[str, ...]]:
    """A comma-separated list without repetition; `check` takes the place of the usual checks."""
    check = check or _distinct(one_of, may_be_empty)
    return Key(Type.LIST, default, doc, update, check, _choices(one_of))


def optional_integer(
    doc: str, *, at_least: float | None = None, update: Update = Update.READ_ONLY
) -> Key[int | None]:
    """A whole number of 32 bits that something else stands in for while it is unset."""
    check, valid = _range(at_least, None), _range_text(at_least, None)
    return Key(Type.INT, None, doc, update, check, valid)


def optional_long(doc: str, *, update: Update = Update.READ_ONLY) -> Key[int | None]:
    """A whole number of 64 bits that another key stands in for while it is unset."""
    return Key(Type.LONG, None, doc, update)


def optional_string(
    doc: str, *, one_of: tuple[str, ...] = (), update: Update = Update.READ_ONLY
) -> Key[str | None]:
    """A text that may be left unset, one of `one_of` where that is given."""
    check = _one_of(one_of) if one_of else None
    return Key(Type.STRING, None, doc, update, check, _choices(one_of))


def password(doc: str, *, update: Update = Update.READ_ONLY) -> Key[str | None]:
    """A text that nobody is shown."""
    return Key(Type.PASSWORD, None, doc, update)


def optional_names(doc: str, *, update: Update = Update.READ_ONLY) -> Key[tuple[str, ...] | None]:
    """A comma-separated list that another key stands in for while it is unset."""
    return Key(Type.LIST, None, doc, update, _distinct((), may_be_empty=False))


def _range(low: float | None, high: float | None) -> Check | None:
    if low is None and high is None:
        return None

    def check(key: str, value: float) -> None:
        if low is not None and value < low:
            raise ConfigError.invalid(key, value, f"Value must be at least {low}")
        if high is not None and value > high:
            raise ConfigError.invalid(key, value, f"Value must be no more than {high}")

    return check


def _range_text(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return ""
    return f"[{'...' if low is None else low},...{'' if high is None else f',{high}'}]"


def _one_of(choices: tuple[str, ...]) -> Check:
    def check(key: str, value: str) -> None:
        if value not in choices:
            raise ConfigError.invalid(key, value, f"String must be one of: {', '.join(choices)}")

    return check


def _distinct(choices: tuple[str, ...], may_be_empty: bool) -> Check:
    check_item = _one_of(choices) if choices else None

    def check(key: str, values: tuple[str, ...]) -> None:
        if not values and not may_be_empty:
            raise ConfigError(
                f"Configuration '{key}' must not be empty. Valid values include: "
                + (_choices(choices) or "any non-empty value")
            )
        if len(set(values)) != len(values):
            raise ConfigError(f"Configuration '{key}' values must not be duplicated.")
        for value in values:
            if not value:
                raise ConfigError(f"Configuration '{key}' values must not be empty.")
            if check_item is not None:
                check_item(key, value)

    return check


def _choices(choices: tuple[str, ...]) -> str:
    return f"[{', '.join(choices)}]" if choices else ""
