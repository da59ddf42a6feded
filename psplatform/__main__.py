"""``python -m psplatform``: the command line without its script."""

from __future__ import annotations

import os
import signal

from psplatform.cli.main import main

if __name__ == "__main__":
    # A process in a session of its own has no keyboard: an interrupt is meant for it, whatever its parent ignores.
    if os.getsid(0) == os.getpid():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
