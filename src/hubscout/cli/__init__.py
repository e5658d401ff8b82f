"""The commands, those on the same thing in one file, imported when one is asked for.

A file of commands has a typer app called `app`, imports nothing heavy at its top, and is named in `app.COMMANDS`.
Results go to standard output, all else to standard error: see `output`.
"""

from __future__ import annotations


def main() -> None:
    """Run the command line; the entry point of `hubscout` and `python -m hubscout`."""
    import atexit
    import gc
    import os
    import time

    # Threads of torch that wait for each other spin, by default for milliseconds, a hundred times in a pass. While
    # other work has a core, the thread that is waited for cannot have that of the one that spins.
    # GNU's OpenMP reads this when torch is imported (benchmarks/busy_cores.py).
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = "3000"

    # Last of all, when the process ends: no search for garbage among the objects of torch, which takes a second.
    atexit.register(gc.freeze)
    began = time.perf_counter()  # a budget of the user's counts what is imported and opened from here on

    from hubscout.cli.app import app

    app(obj={"began": began})


__all__ = ["main"]
