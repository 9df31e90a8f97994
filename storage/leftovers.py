"""Files that a process left half-way: finished or removed before a log is opened.

.cleaned   a compacted segment that was not complete, or not yet wanted: removed
.swap      a complete one on its way into the log: takes the place of what it was made from
.deleted   on their way out: removed
.tmp       a file that was being written anew: removed
"""

import os

from barnabas.storage.files import Files
from barnabas.storage.scan import valid_batches
from barnabas.storage.segment import CLEANED, DELETED, KINDS_LOG_LAST, LOG, SWAP, file_name

TEMPORARY = ".tmp"

_REMOVED = (CLEANED, DELETED, TEMPORARY)


def clear_leftovers(files: Files, directory: str) -> None:
    """Leaves nothing in `directory` but whole segments, snapshots and checkpoints.

    What a crash brings back is cleared again.
    """
    names = files.listdir(directory)
    for name in names:
        if name.endswith(_REMOVED):
            files.unlink(os.path.join(directory, name))
    for name in names:
        if name.endswith(LOG + SWAP):
            _finish_swap(files, directory, int(name.removesuffix(LOG + SWAP)))
    names = files.listdir(directory)
    for name in names:
        stem, _, kind = name.partition(".")
        is_orphan = f".{kind}" in KINDS_LOG_LAST and stem + LOG not in names
        if name.endswith(SWAP) or is_orphan:
            files.unlink(os.path.join(directory, name))


def _finish_swap(files: Files, directory: str, base_offset: int) -> None:
    """Removes the segments that the compacted one was made from, and gives it its name.

    Its indexes go: whether they have their final names already, nobody knows. They are rebuilt.
    """
    path = os.path.join(directory, file_name(base_offset, LOG))
    last_offset = base_offset
    for _, header in valid_batches(files.open(path + SWAP), base_offset):
        last_offset = header.last_offset
    for name in files.listdir(directory):
        stem, _, kind = name.partition(".")
        if f".{kind}" in KINDS_LOG_LAST and base_offset <= int(stem) <= last_offset:
            files.unlink(os.path.join(directory, name))
    files.rename(path + SWAP, path)
