"""The garbage collection of Spark's workers, in a process of its own: `gc.freeze` is for ever."""

import json
import subprocess
import sys

_SCRIPT = """
import gc, json
from barnabas.pipeline.spark.worker_memory import spare_modules

kept, found = [], []
for kind in ("read", "read", "read", "write", "write", "write"):
    kept.append([[] for _ in range(1_000)])
    spare_modules(kind)
    found.append(gc.get_freeze_count() // 1_000)
print(json.dumps(found))
"""


def test_modules_are_exempt_from_collection_at_the_second_call_of_each_kind() -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT], stdout=subprocess.PIPE, check=True)
    first_read, second_read, third_read, first_write, *later_writes = json.loads(done.stdout)
    assert first_read == 0
    assert second_read == third_read == first_write > 1
    assert later_writes == [first_write + 3] * 2
