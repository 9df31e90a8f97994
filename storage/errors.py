"""What the disk can do to a log."""

from barnabas.protocol.errors import ErrorCode, KafkaError


class LogDirFailed(KafkaError):
    """A write or an fsync in a log directory failed, and the directory is offline from now on.

    Clients are answered KAFKA_STORAGE_ERROR. After a failed fsync the kernel may have dropped the
    dirty pages and report success the next time, so nothing is ever tried again on the same
    descriptors: what is on disk is found out by the recovery of the next start.
    """

    def __init__(self, log_dir: str, cause: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {log_dir}: {cause}")
        self.log_dir = log_dir
