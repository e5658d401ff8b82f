"""The commands, those on the same thing in one file, imported when one is asked for.

A file of commands has a typer app called `app`, imports nothing heavy at its top, and is named in `app.COMMANDS`.
Results go to standard output, all else to standard error: see `output`.
"""

from __future__ import annotations


def main() -> None:
    """Run the command line; the entry point of `hubscout` and `python -m hubscout`."""
    import atexit
    import gc
    import time

    from hubscout.cli.process_settings import set_process

    set_process()  # before torch and NumPy are imported
    # Last of all, when the process ends: no search for garbage among the objects of torch, which takes a second.
    atexit.register(gc.freeze)
    began = time.perf_counter()  # a budget of the user's counts what is imported and opened from here on

    from hubscout.cli.app import app

    app(obj={"began": began})


__all__ = ["main"]
