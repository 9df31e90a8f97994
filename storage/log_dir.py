"""One entry of `log.dirs`: its identity, and whether its disk still works."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, NoReturn, ParamSpec, Protocol, TypeVar

from barnabas.storage.errors import LogDirFailed


class LogDir:
    """A log directory. It goes offline at its first failed call to the disk, and stays so."""

    __slots__ = ("_on_failure", "directory_id", "failure", "path")

    def __init__(
        self,
        path: str,
        directory_id: str = "",
        on_failure: Callable[["LogDir", LogDirFailed], None] | None = None,
    ) -> None:
        """`on_failure` is told once, from whichever call failed."""
        self.path = path
        self.directory_id = directory_id
        self.failure: LogDirFailed | None = None
        self._on_failure = on_failure

    def fail(self, cause: OSError) -> NoReturn:
        """Takes the directory offline; raises LogDirFailed."""
        if self.failure is None:
            self.failure = LogDirFailed(self.path, str(cause))
            if self._on_failure is not None:
                self._on_failure(self, self.failure)
        raise self.failure from cause

    def require_online(self) -> None:
        """Raises LogDirFailed where the directory is offline."""
        if self.failure is not None:
            raise LogDirFailed(self.path, str(self.failure))


class OnLogDir(Protocol):
    """Whoever keeps its files in a log directory."""

    @property
    def log_dir(self) -> LogDir: ...


S = TypeVar("S", bound=OnLogDir)
P = ParamSpec("P")
R = TypeVar("R")


def on_disk(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Refuses where the log directory is offline, and takes it offline at an OSError."""

    @wraps(method)
    def guarded(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        log_dir = self.log_dir
        if log_dir.failure is not None:
            log_dir.require_online()
        try:
            return method(self, *args, **kwargs)
        except OSError as error:
            log_dir.fail(error)

    return guarded
