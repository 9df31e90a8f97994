"""What every test may rely on."""

import signal

from barnabas.cli.serve import allow_many_files

# A shell that runs us in its background has SIGINT ignored, and so would the programs that the
# tests start and then interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Brokers of the tests hold the files of many hundred partitions, and a shell allows 1024.
allow_many_files()
