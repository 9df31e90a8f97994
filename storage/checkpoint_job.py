"""The checkpoints of one log directory, on their way to the disk."""

from collections.abc import Mapping

from barnabas.storage.log import Log
from barnabas.storage.log_dir import Checkpoints, LogDir


class CheckpointJob:
    """Writes the checkpoints of one directory: `run` in a thread, then
    `LogManager.finish_checkpoint`."""

    def __init__(
        self, log_dir: LogDir, checkpoints: Checkpoints, logs: Mapping[tuple[str, int], Log]
    ) -> None:
        """`logs` by topic and partition."""
        self.log_dir = log_dir
        self.checkpoints = checkpoints
        self.logs = logs
        self.error: OSError | None = None
        self.generation = log_dir.generation

    def run(self) -> None:
        """A failure is kept in `error` for the loop to act on."""
        try:
            self.log_dir.write_checkpoints(self.checkpoints, self.generation)
        except OSError as error:
            self.error = error
