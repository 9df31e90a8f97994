"""One log on a disk in memory, and batches to append to it."""

from barnabas.config.topic import TopicConfig
from barnabas.protocol.records.batch import iter_headers
from barnabas.protocol.records.record import Record, build_batch
from barnabas.storage.files.log_dir import LogDir
from barnabas.storage.log.flush import RolledLogs
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_parts import LogLocation, LogOptions
from barnabas.storage.log.trim import drop_old_segments
from barnabas.storage.opening.recovery import load_log
from tests.support.mem_files import MemFiles

NOW = 1_700_000_000_000
DIRECTORY = "/data/orders-0"
SMALL = TopicConfig(segment_bytes=1000, index_interval_bytes=100, segment_index_bytes=240)


def disk() -> MemFiles:
    files = MemFiles()
    files.make_dir("/data")
    files.make_dir(DIRECTORY)
    files.sync_dir("/")
    return files


def load(
    files: MemFiles,
    config: TopicConfig = SMALL,
    *,
    clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    checkpoints: list[LogDir] | None = None,
    explain: bool = False,
) -> Log:
    log_dir = LogDir(files, "/data")
    log = load_log(
        LogLocation(files, log_dir, DIRECTORY, "orders", 0, bytes(16)),
        config,
        LogOptions(
            producer_expiration_ms=lambda: 86_400_000,
            roll_jitter=lambda _: 0,
            checkpoint=(checkpoints if checkpoints is not None else []).append,
            rolled=RolledLogs(),
            explain=explain,
        ),
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        now_ms=NOW,
    )
    log.advance_high_watermark(log.log_end_offset)
    return log


def batch(*values: bytes, timestamp: int = NOW, **producer: int) -> bytearray:
    records = [Record(i, timestamp, b"k", value) for i, value in enumerate(values)]
    return bytearray(build_batch(records, base_offset=0, **producer))


def retain(log: Log, now_ms: int) -> int:
    """Apply retention at once; return how many segments were dropped."""
    before = len(log.segments)
    dropped = drop_old_segments(log, now_ms=now_ms)
    if dropped is not None:
        dropped.complete()
    return before - len(log.segments)


def put(log: Log, *values: bytes, epoch: int = 0, timestamp: int = NOW, **producer: int) -> int:
    """Append one batch; return its first offset."""
    data = batch(*values, timestamp=timestamp, **producer)
    first = log.append(data, leader_epoch=epoch, now_ms=NOW).first_offset
    log.advance_high_watermark(log.log_end_offset)
    return first


def offsets(log: Log, start: int | None = None, max_bytes: int = 1 << 20) -> list[int]:
    """Return the base offsets of the batches that a read returns."""
    at = log.log_start_offset if start is None else start
    data = log.read(at, max_bytes, limit=log.high_watermark).read_bytes()
    return [header.base_offset for _, header in iter_headers(data)]


def damage(files: MemFiles, name: str, position: int = -1) -> None:
    file = files.open(name)
    data = bytearray(file.read(1 << 20, 0))
    data[position] ^= 0x55
    file.truncate(0)
    file.append(data)
