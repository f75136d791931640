"""`python -m coterie.deploy.chaos.struck …`: a command of coterie whose clock is off, or whose disk
is full.

The clock is Python's: what TLS reads is the system's, which only root may change; where libfaketime
is installed, it could be put in front of all commands. A full disk is a limit on the size of files,
under which writes fail as they do there ("File too large").
"""

from __future__ import annotations

import runpy
import sys
import time


def main() -> None:
    kind, amount, *arguments = sys.argv[1:]
    if kind == "clock":
        shift, clock = float(amount), time.time
        time.time = lambda: clock() + shift
    else:
        import resource  # not on Windows

        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(amount), most))
    sys.argv = ["coterie", *arguments]
    runpy.run_module("coterie", run_name="__main__")


if __name__ == "__main__":
    main()
