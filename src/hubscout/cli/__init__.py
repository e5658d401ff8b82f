"""The commands, those on the same thing in one file, imported when one is asked for.

A file of commands has a typer app called `app`, imports nothing heavy at its top, and is named in `app.COMMANDS`.
Results go to standard output, all else to standard error: see `output`.
"""

from __future__ import annotations


def program() -> None:
    """The entry point of `hubscout` and `python -m hubscout`: the command line, which ends the process."""
    from hubscout.cli.quick_exit import QuickExit

    QuickExit().run(main)


def main() -> None:
    """Run the command line, which ends by `sys.exit`."""
    import os
    import sys
    import time

    # Threads that wait for work or for each other spin, by default for milliseconds, a hundred times in a pass or a
    # score. While other work has a core, the thread that is waited for cannot have that of the one that spins.
    # GNU's OpenMP reads the first when torch is imported, OpenBLAS the second, a power of two of cycles, when NumPy or
    # SciPy is (benchmarks/busy_cores.py).
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = "3000"
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "14")

    began = time.perf_counter()  # a budget of the user's counts what is imported and opened from here on

    from hubscout.interrupts import uninterrupted

    try:
        with uninterrupted():
            from hubscout.cli.app import app
            from hubscout.light_imports import import_lightly

            import_lightly()
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        sys.exit(130)
    app(obj={"began": began})


__all__ = ["main", "program"]
