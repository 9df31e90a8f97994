"""The error of a failed log directory."""

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
