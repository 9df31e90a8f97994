"""Functions without one of their checks: the tests of each check must notice."""

import asyncio
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any, NamedTuple, TypeVar

import pytest

T = TypeVar("T", bound=Callable[..., Any])


class Mutant(NamedTuple):
    """A function without one of its checks, and the test of its module that finds it."""

    function: Callable[..., Any]
    old: str
    new: str
    found_by: str
    arguments: tuple[Any, ...] = ()

    @property
    def title(self) -> str:
        return f"{self.function.__name__}: {' '.join(self.old.split())}"


def finds(
    function: Callable[..., Any], old: str, new: str = "", *arguments: Any
) -> Callable[[T], T]:
    """Declare that a test, with these arguments, finds a function in which `new` has taken the
    place of `old`."""

    def declare(test: T) -> T:
        mutant = Mutant(function, old, new, test.__name__, arguments)
        vars(test).setdefault("finds", []).append(mutant)
        return test

    return declare


def cases(
    names: str, *rows: tuple[Any, ...], of: Callable[..., Any] | None = None
) -> Callable[[T], T]:
    """Parametrize a test. Behind its values a row may have mutants that the test finds with them:
    function, `old` and `new`, or `old` and `new` of the function `of`."""
    width = len(names.split(","))

    def declare(test: T) -> T:
        for row in rows:
            arguments, behind = row[:width], row[width:]
            for each in behind if of is None else [(of, *behind)] * bool(behind):
                function, old, new = (*each, "")[:3]
                finds(function, old, new, *arguments)(test)
        values = [row[:width] if width > 1 else row[0] for row in rows]
        return pytest.mark.parametrize(names, values)(test)

    return declare


def hunt(tests: Mapping[str, Any]) -> Callable[[Mutant], None]:
    """Return the test that hunts the mutants which the tests of a module find."""

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    @pytest.mark.parametrize(
        "mutant",
        [each for test in tests.values() for each in getattr(test, "finds", ())],
        ids=lambda mutant: mutant.title,
    )
    def test_missing_check_is_found(mutant: Mutant) -> None:
        if mutant.arguments:
            # A test that always fails with them would find anything.
            _run(mutant, tests)
        require_found(mutant, tests)

    return test_missing_check_is_found


def mutated(function: Callable[..., Any], old: str, new: str) -> CodeType:
    """Return the code of a function in whose source `new` has taken the place of `old`."""
    assert isinstance(function, FunctionType)
    source = textwrap.dedent(inspect.getsource(function)).removeprefix("@property\n")
    # Line breaks and indentation count only where `old` has those of the source.
    pattern = re.escape(old) if old in source else r"\s+".join(map(re.escape, old.split()))
    source, found = re.subn(pattern, lambda _: new, source)
    assert found == 1, f"{function.__qualname__} has {old!r} {found} times"
    names: dict[str, Any] = dict(function.__globals__)
    exec("from __future__ import annotations\n" + source, names)
    code: CodeType = names[function.__name__].__code__
    return code


@contextmanager
def installed(mutant: Mutant) -> Iterator[None]:
    """Remove the check."""
    function: Any = mutant.function
    sound = function.__code__
    function.__code__ = mutated(function, mutant.old, mutant.new)
    try:
        yield
    finally:
        function.__code__ = sound


def require_found(mutant: Mutant, tests: Mapping[str, Any]) -> None:
    """Fail unless the test of a mutant, by its name in `tests`, fails or breaks off."""
    with installed(mutant):
        try:
            _run(mutant, tests)
        except (Exception, pytest.fail.Exception):
            return
    pytest.fail(f"{mutant.found_by} does not miss {mutant.title!r}")


def _run(mutant: Mutant, tests: Mapping[str, Any]) -> None:
    outcome = tests[mutant.found_by](*mutant.arguments)
    if inspect.iscoroutine(outcome):
        asyncio.run(outcome)
