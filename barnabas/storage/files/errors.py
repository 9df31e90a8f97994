"""The errors of a failed log directory, and of a process without free file descriptors."""

import errno

from barnabas.protocol.errors import ErrorCode, KafkaError


class LogDirFailed(KafkaError):
    """A write or an fsync in a log directory failed: the directory is offline from now on.

    The error code for clients is KAFKA_STORAGE_ERROR. After a failed fsync the kernel may drop the
    dirty pages and report success the next time, so nothing is retried on the same descriptors: the
    recovery at the next start reads what is on disk.
    """

    def __init__(self, log_dir: str, cause: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {log_dir}: {cause}")
        self.log_dir = log_dir


class OutOfDescriptors(KafkaError):
    """A file could not be opened, because the process or the machine has too many open files.

    The error code for clients is KAFKA_STORAGE_ERROR, which they retry. The log is unchanged, and
    its directory stays online.
    """

    def __init__(self, log_dir: str, cause: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {log_dir}: {cause}")


def lacks_descriptors(error: BaseException) -> bool:
    """Return whether a call failed because too many files are open, here or on the machine."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)
