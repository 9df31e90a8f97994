"""Kafka's DumpLogSegments reads the files that the cleaner and the producer snapshots write."""

import re
from pathlib import Path

from barnabas.config.topic import TopicConfig
from barnabas.protocol.records.compression import Compression
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.records.record import Record, build_batch
from barnabas.storage.cleaning.cleaner import CompactionLimits, LogCleaner
from barnabas.storage.cleaning.cleaner_worker import InlineCleaner
from barnabas.storage.files.files import OsFiles
from barnabas.storage.files.log_dir import LogDir
from barnabas.storage.log.flush import RolledLogs
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_parts import LogLocation, LogOptions
from barnabas.storage.opening.recovery import load_log
from barnabas.storage.origin import Origin
from tests.support.kafka.tools import Tools

NOW = 1_700_000_000_000
FILES = OsFiles()


def compacted(directory: Path) -> Log:
    """Return a closed log whose first 27 offsets are compacted: all codecs, an aborted
    transaction."""
    log = load_log(
        LogLocation(FILES, LogDir(FILES, str(directory.parent)), str(directory), "t", 0, bytes(16)),
        TopicConfig(cleanup_policy=("compact",), index_interval_bytes=100, segment_bytes=1000),
        LogOptions(lambda: 10**15, lambda _: 0, lambda _: None, RolledLogs()),
        clean=False,
        recovery_point=0,
        log_start_offset=0,
        now_ms=NOW,
    )
    sequence = 0
    for codec in Compression:
        for value in (b"x" * 100, None, b"y" * 100, b"z" * 100, b"z"):
            key = codec.name.encode() if value else b"gone"
            batch = build_batch(
                [Record(0, NOW, key, value)],
                compression=codec,
                producer_id=5,
                producer_epoch=0,
                base_sequence=sequence,
            )
            log.append(batch, leader_epoch=1, now_ms=NOW)
            sequence += 1
    transactional = build_batch(
        [Record(0, NOW, b"k", b"v")],
        producer_id=6,
        producer_epoch=2,
        base_sequence=0,
        transactional=True,
    )
    log.append(transactional, leader_epoch=1, now_ms=NOW)
    abort = TxnMarker(6, 2, 9, False).packed(NOW)[0]
    log.append(abort, leader_epoch=1, now_ms=NOW, origin=Origin.COORDINATOR)
    log.roll(now_ms=NOW)
    log.append(build_batch([Record(0, NOW, b"k", b"v")]), leader_epoch=1, now_ms=NOW)
    log.advance_high_watermark(log.log_end_offset)
    log.recovery_point = log.flush()
    cleaner = LogCleaner(FILES, InlineCleaner(FILES).clean)
    cleaning = cleaner.start([log], CompactionLimits(1 << 20, 1e18), NOW)
    assert cleaning is not None
    while (group := cleaning.next_group()) is not None:
        cleaner.swap(cleaning, group).complete()
    assert cleaning.job.end_offset == 27
    log.close()
    return log


def test_dump_log_segments_reads_compacted_segments_and_producer_snapshots(
    tmp_path: Path, tools: Tools
) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    compacted(directory)
    files = sorted(
        path
        for path in directory.iterdir()
        if path.suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    )
    text = tools.dump_log(*files, options=("--deep-iteration", "--print-data-log"))
    assert "isvalid: false" not in text
    assert len(re.findall("isvalid: true", text)) >= 8
    for codec in Compression:
        assert len(re.findall(f"key: {codec.name} payload: z$", text, re.MULTILINE)) == 1
    assert len(re.findall(r"key: gone$", text, re.MULTILINE)) == 1
    assert f"deleteHorizonMs: OptionalLong[{NOW + 86_400_000}]" in text
    assert "endTxnMarker: ABORT coordinatorEpoch: 9" in text
    assert "producerId: 6 firstOffset: 25 lastOffset: 26 lastStableOffset: 27" in text
    assert "producerId: 5 producerEpoch: 0 coordinatorEpoch: -1" in text
    assert "firstSequence: 24 lastSequence: 24 lastOffset: 24" in text
    for complaint in ("Mismatches in", "Found timestamp mismatch", "out of order", "Exception"):
        assert complaint not in text
