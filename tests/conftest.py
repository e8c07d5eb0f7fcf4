"""What every test process needs, however it was started."""

import signal

# A shell starts background jobs with SIGINT ignored, and whatever they start inherits that: a Ctrl-C that a test sends would
# then never arrive. With a handler here, what the tests start begins with the default again.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
