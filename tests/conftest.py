"""What every test may rely on."""

import signal

# A shell that runs us in its background has SIGINT ignored, and so would the programs that the
# tests start and then interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
