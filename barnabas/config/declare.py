"""Declarations of keys: one function for each type of value, with its range."""

from barnabas.config.key import Check, ConfigError, Key, Type, Update


def boolean(default: bool, doc: str, *, update: Update = Update.READ_ONLY) -> Key[bool]:
    """Declare a key with the value `true` or `false`, in any case."""
    return Key(Type.BOOLEAN, default, doc, update)


def optional_boolean(doc: str) -> Key[bool | None]:
    """Declare a key with the value `true` or `false` that may be unset."""
    return Key(Type.BOOLEAN, None, doc, Update.READ_ONLY)


def integer(
    default: int,
    doc: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    check: Check | None = None,
    update: Update = Update.READ_ONLY,
) -> Key[int]:
    """Declare a key with an integer of 32 bits; `check` replaces the range."""
    valid = _range_text(at_least, at_most)
    return Key(Type.INT, default, doc, update, check or _range(at_least, at_most), valid)


def short(
    default: int, doc: str, *, at_least: float, update: Update = Update.READ_ONLY
) -> Key[int]:
    """Declare a key with an integer of 16 bits."""
    check, valid = _range(at_least, None), _range_text(at_least, None)
    return Key(Type.SHORT, default, doc, update, check, valid)


def long(
    default: int, doc: str, *, at_least: float | None = None, update: Update = Update.READ_ONLY
) -> Key[int]:
    """Declare a key with an integer of 64 bits."""
    check, valid = _range(at_least, None), _range_text(at_least, None)
    return Key(Type.LONG, default, doc, update, check, valid)


def double(
    default: float,
    doc: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    update: Update = Update.READ_ONLY,
) -> Key[float]:
    """Declare a key with a floating-point number of 64 bits."""
    check, valid = _range(at_least, at_most), _range_text(at_least, at_most)
    return Key(Type.DOUBLE, default, doc, update, check, valid)


def string(
    default: str,
    doc: str,
    *,
    one_of: tuple[str, ...] = (),
    any_case: bool = False,
    update: Update = Update.READ_ONLY,
) -> Key[str]:
    """Declare a key with a text, one of `one_of` if given; with `any_case` they are capitals."""
    check = _one_of(one_of, any_case=any_case) if one_of else None
    valid = "(case insensitive) " * any_case + _choices(one_of)
    return Key(Type.STRING, default, doc, update, check, valid)


def names(
    default: tuple[str, ...],
    doc: str,
    *,
    one_of: tuple[str, ...] = (),
    may_be_empty: bool = True,
    check: Check | None = None,
    update: Update = Update.READ_ONLY,
) -> Key[tuple[str, ...]]:
    """Declare a key with a comma-separated list of distinct texts.

    With `check`, which replaces all other checks, equal texts are kept.
    """
    valid = _choices(one_of)
    if check is not None:
        return Key(Type.LIST, default, doc, update, check, valid)
    each = _each(one_of, may_be_empty)
    return Key(Type.LIST, default, doc, update, each, valid, distinct=True)


def optional_integer(
    doc: str, *, at_least: float | None = None, update: Update = Update.READ_ONLY
) -> Key[int | None]:
    """Declare a key with an integer of 32 bits that may be unset."""
    check, valid = _range(at_least, None), _range_text(at_least, None)
    return Key(Type.INT, None, doc, update, check, valid)


def optional_long(doc: str, *, update: Update = Update.READ_ONLY) -> Key[int | None]:
    """Declare a key with an integer of 64 bits that may be unset; another key is its default."""
    return Key(Type.LONG, None, doc, update)


def optional_string(
    doc: str, *, one_of: tuple[str, ...] = (), update: Update = Update.READ_ONLY
) -> Key[str | None]:
    """Declare a key with a text that may be unset, one of `one_of` if given."""
    check = _one_of(one_of) if one_of else None
    return Key(Type.STRING, None, doc, update, check, _choices(one_of))


def password(doc: str, *, update: Update = Update.READ_ONLY) -> Key[str | None]:
    """Declare a key with a text that is never shown."""
    return Key(Type.PASSWORD, None, doc, update)


def optional_names(doc: str, *, update: Update = Update.READ_ONLY) -> Key[tuple[str, ...] | None]:
    """Declare a key with a comma-separated list that may be unset; another key is its default."""
    return Key(Type.LIST, None, doc, update, _each((), may_be_empty=False), distinct=True)


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


def _one_of(choices: tuple[str, ...], *, any_case: bool = False) -> Check:
    how = " (case insensitive)" * any_case

    def check(key: str, value: str) -> None:
        if (value.upper() if any_case else value) not in choices:
            reason = f"String must be one of{how}: {', '.join(choices)}"
            raise ConfigError.invalid(key, value, reason)

    return check


def _each(choices: tuple[str, ...], may_be_empty: bool) -> Check:
    check_item = _one_of(choices) if choices else None

    def check(key: str, values: tuple[str, ...]) -> None:
        if not values and not may_be_empty:
            raise ConfigError(
                f"Configuration '{key}' must not be empty. Valid values include: "
                + (_choices(choices) or "any non-empty value")
            )
        for value in values:
            if not value:
                raise ConfigError(f"Configuration '{key}' values must not be empty.")
            if check_item is not None:
                check_item(key, value)

    return check


def _choices(choices: tuple[str, ...]) -> str:
    return f"[{', '.join(choices)}]" if choices else ""
