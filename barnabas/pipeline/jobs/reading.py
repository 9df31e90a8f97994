"""Job files: YAML with the position of each key, and errors that name line and column."""

import inspect
import typing
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from barnabas.client.security import KEYS, SECRETS
from barnabas.config.key import ConfigError
from barnabas.pipeline.jobs.references import IN_CLEAR, References
from barnabas.pipeline.jobs.spec import (
    REFERENCES,
    SINKS,
    Job,
    Location,
    Problem,
    check_references,
    near,
    nearest,
)
from barnabas.pipeline.security import options_of, split_security
from barnabas.registry.settings import KEYS as REGISTRY_KEYS
from barnabas.registry.settings import SECRETS as REGISTRY_SECRETS
from barnabas.registry.settings import read_settings

_LONGEST: Final = 1 << 20
_DEEPEST: Final = 20
_MOST_VALUES: Final = 10_000
"""Limit of values, because aliases of YAML can stand for exponentially many."""

T = TypeVar("T")


class JobError(ValueError):
    """One line for each fault of a job file: path, line, column and what to do."""


class Position(NamedTuple):
    """Line and column of a key or value; both begin with 1."""

    line: int
    column: int


class _Scalar(NamedTuple):
    """A value of the file: its begin, its style in YAML, and the line index of its end.

    The end of a block is the first line behind it.
    """

    begin: Position
    style: str | None
    end: int


class JobFile:
    """A job and the positions of its keys. `text` is the content of the file at `path`."""

    def __init__(self, path: Path, text: str, *, packs: bool = False) -> None:
        """Read the job; raises JobError.

        A job that is packed runs elsewhere: its security and registry are left out, once the
        names of their keys are checked.
        """
        self.path = path
        self.references = References(path.parent, packs=packs)
        self._lines = text.splitlines()
        self._keys: dict[Location, Position] = {}
        self._values: dict[Location, _Scalar] = {}
        data = self._parse(text)
        try:
            self.job = Job.model_validate(data, context={REFERENCES: self.references})
        except ValidationError as error:
            raise self.failure(_problems(error.errors())) from None
        if problems := check_references(self.job):
            raise self.failure(problems)
        for part, check in (("security", _check_security), ("registry", read_settings)):
            if given := getattr(self.job, part):
                keys = self.located(partial(_keys, part, check, given, self.references))
                self.job = self.job.model_copy(update={part: keys})

    @property
    def checkpoint(self) -> str:
        """The checkpoint: a URI as it stands, or a path below the folder of the job file."""
        if "://" in self.job.checkpoint:
            return self.job.checkpoint
        return str((self.path.parent / self.job.checkpoint).resolve())

    def failure(self, problems: Sequence[Problem]) -> JobError:
        """Return the error that tells `problems` in the order of the file."""
        placed = sorted((self._position(each), each.text) for each in problems)
        return JobError(
            "\n".join(f"{self.path}:{at.line}:{at.column}: {text}" for at, text in placed)
        )

    def located(self, work: Callable[[], T]) -> T:
        """Return what `work` returns; its Problem becomes a JobError with line and column."""
        try:
            return work()
        except Problem as problem:
            raise self.failure([problem]) from problem

    def _position(self, problem: Problem) -> Position:
        """Return where `problem` is, or the nearest mapping around it."""
        location = problem.location
        if isinstance(problem, TextProblem) and (scalar := self._values.get(location)):
            return self._inside(scalar, problem.line, problem.column)
        while location and location not in self._keys:
            location = location[:-1]
        return self._keys.get(location, Position(1, 1))

    def _inside(self, scalar: _Scalar, line: int, column: int) -> Position:
        """Return the position of a line and column within the text of a scalar, both from 0."""
        if scalar.style == "|":
            number = scalar.begin.line + line
            indents = [
                len(each) - len(each.lstrip())
                for each in self._lines[scalar.begin.line : scalar.end]
                if each.strip()
            ]
            return Position(number + 1, min(indents, default=0) + column + 1)
        if scalar.style == ">" or scalar.end >= scalar.begin.line:
            return scalar.begin
        return Position(scalar.begin.line, scalar.begin.column + bool(scalar.style) + column)

    def _parse(self, text: str) -> object:
        if len(text) > _LONGEST:
            raise JobError(f"{self.path}: longer than {_LONGEST} characters; is it a job file?")
        try:
            loader = yaml.SafeLoader(text)
            try:
                root = loader.get_single_node()
                if root is None:
                    raise self.failure(
                        [Problem((), "the file is empty; docs/PIPELINE.md has an example")]
                    )
                return self._convert(loader, root, ())
            finally:
                loader.dispose()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            at = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
            raise JobError(f"{self.path}{at}: not YAML: {error.problem}") from None
        except (yaml.YAMLError, ValueError) as error:
            if isinstance(error, JobError):
                raise
            raise JobError(f"{self.path}: not YAML: {str(error).splitlines()[0]}") from None

    def _convert(self, loader: yaml.SafeLoader, node: yaml.Node, location: Location) -> object:
        """Return the value of a node, and remember where it stands."""
        begin = Position(node.start_mark.line + 1, node.start_mark.column + 1)
        self._keys.setdefault(location, begin)
        style = node.style if isinstance(node, yaml.ScalarNode) else None
        self._values[location] = _Scalar(begin, style, node.end_mark.line)
        if len(self._values) > _MOST_VALUES or len(location) > _DEEPEST:
            raise self.failure([Problem(location, "too many values; is it a job file?")])
        if isinstance(node, yaml.MappingNode):
            return self._convert_mapping(loader, node, location)
        if isinstance(node, yaml.SequenceNode):
            return [
                self._convert(loader, each, (*location, index))
                for index, each in enumerate(node.value)
            ]
        value: object = loader.construct_object(node)
        return value

    def _convert_mapping(
        self, loader: yaml.SafeLoader, node: yaml.MappingNode, location: Location
    ) -> Mapping[Hashable, object]:
        converted: dict[Hashable, object] = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            mark = key_node.start_mark
            at = Position(mark.line + 1, mark.column + 1)
            if not isinstance(key, str):
                raise JobError(f"{self.path}:{at.line}:{at.column}: a key must be plain text")
            if key in converted:
                raise JobError(f"{self.path}:{at.line}:{at.column}: key {key!r} stands here twice")
            self._keys[*location, key] = at
            converted[key] = self._convert(loader, value_node, (*location, key))
        return converted


class TextProblem(Problem):
    """A fault inside a text of a job file, such as a query: line and column in it, from 0."""

    def __init__(self, location: Location, text: str, line: int, column: int) -> None:
        super().__init__(location, text)
        self.line = line
        self.column = column


def read_job(path: Path, *, packs: bool = False) -> JobFile:
    """Read the job file at `path`; raises JobError, and OSError if it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise JobError(f"{path}: not UTF-8; is it a job file?") from None
    return JobFile(path, text, packs=packs)


# -- security and registry -----------------------------------------------------------------------


_KEYS: Final = {"security": (KEYS, SECRETS), "registry": (REGISTRY_KEYS, REGISTRY_SECRETS)}
"""The keys of `security` and `registry`, and those that are secret."""


def _check_security(keys: Mapping[str, str]) -> None:
    split_security(options_of(keys))


def _keys(
    part: str,
    check: Callable[[Mapping[str, str]], object],
    given: Mapping[str, Any],
    references: References,
) -> dict[str, str]:
    """Return the keys of a client or of a registry with all their values, checked.

    Raises Problem; no text shows a value.
    """
    keys = {name: _value_of(part, name, value, references) for name, value in given.items()}
    if references.packs:
        return {}
    try:
        check(keys)
    except ConfigError as error:
        raise Problem((part,), f"{part}: {error}") from None
    return keys


def _value_of(part: str, name: str, value: object, references: References) -> str:
    known, secrets = _KEYS[part]
    location = (part, name)
    if name not in known:
        raise Problem(location, f"unknown key {name!r}; {nearest(name, known)}")
    try:
        found = references.resolve(name, value)
    except ValueError as error:
        raise Problem(location, str(error)) from None
    if found is not None:
        return found
    match value:
        case str() if name not in secrets:
            return value
        case bool() | int() if name not in secrets:
            return str(value).lower()
    if name in secrets:
        raise Problem(location, f"{name}: {IN_CLEAR}")
    raise Problem(location, f"{name} takes text, {{file: PATH}} or {{env: VARIABLE}}")


# -- the texts of pydantic's errors ------------------------------------------------------------


def _problems(errors: Sequence[ErrorDetails]) -> list[Problem]:
    """Return the faults, without missing keys that another key is a misspelling of."""
    meant = set()
    for error in errors:
        if error["type"] == "extra_forbidden":
            *above, key = error["loc"]
            if close := near(str(key), _keys_at(tuple(above))):
                meant.add((*above, close))
    return [
        _problem(error)
        for error in errors
        if error["type"] != "missing" or error["loc"] not in meant
    ]


def _problem(error: ErrorDetails) -> Problem:
    location = error["loc"]
    plain = tuple(part for part in location if part not in SINKS)
    names = [part for part in plain if isinstance(part, str)]
    return Problem(plain, _text(error, location, names[-1] if names else "the file"))


def _path(location: Location) -> str:
    """Return a location as text, such as `steps[0].watermark`."""
    plain = (part for part in location if part not in SINKS)
    parts = [f".{part}" if isinstance(part, str) else f"[{part}]" for part in plain]
    return "".join(parts).removeprefix(".")


def _text(error: ErrorDetails, location: Location, key: str) -> str:
    value = error["input"]
    match error["type"]:
        case "extra_forbidden":
            return f"unknown key {key!r}; {nearest(key, _keys_at(location[:-1]))}"
        case "missing":
            return f"{_path(location[:-1]) or 'the job'} needs the key {key!r}"
        case "literal_error":
            allowed = _choices(error)
            return f"{key}: {value!r} is not possible; {nearest(str(value), allowed)}"
        case "string_type":
            return f"{key} must be text; put {value!r} in quotes"
        case "string_pattern_mismatch":
            return f"{key}: {value!r} has characters that are not allowed"
        case "model_type" | "dict_type" | "model_attributes_type":
            return f"{key} must be a mapping of keys to values"
        case "too_short" | "string_too_short":
            return f"{key} must not be empty"
        case "list_type":
            return f"{key} must be a list"
        case "bool_type" | "bool_parsing":
            return f"{key} must be true or false"
        case "job":
            return error["msg"]
        case _:
            return f"{key}: {error['msg']}"


def _choices(error: ErrorDetails) -> Sequence[str]:
    expected = str(error.get("ctx", {}).get("expected", ""))
    return [each.strip("' ") for each in expected.replace(" or ", ",").split(",")]


def _keys_at(location: Location) -> Sequence[str]:
    """Return the keys of the mapping at `location`."""
    model: type[BaseModel] = Job
    for part in location:
        if part in SINKS:
            model = SINKS[str(part)]
        elif isinstance(part, str):
            field = next(
                each for name, each in model.model_fields.items() if part == (each.alias or name)
            )
            model = _model_of(field.annotation) or model
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_of(annotation: object) -> type[BaseModel] | None:
    """Return the model in `X`, `X | None` or `list[X]`."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return annotation
    found = (_model_of(each) for each in typing.get_args(annotation))
    return next((each for each in found if each), None)
