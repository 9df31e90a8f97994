"""Settings of the process that every test relies on."""

import os
import signal
import sys

# Containers often forbid bytecode files. Without them every pytest process and every broker that a
# test starts compiles all modules again: half of the time that collecting takes.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

from hypothesis import settings  # noqa: E402

from barnabas.cli.processes.broker import raise_file_limit  # noqa: E402

# A shell that runs us in its background ignores SIGINT, and so would the programs that the tests
# start and then interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Brokers of the tests hold the files of many hundred partitions, and a shell allows 1024.
raise_file_limit()

# A machine that is busy with other tests takes longer than any deadline for one example.
settings.register_profile("barnabas", deadline=None)
settings.load_profile("barnabas")
