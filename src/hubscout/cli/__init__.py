"""The commands, those on the same thing in one file, imported when one is asked for.

A file of commands has a typer app called `app`, imports nothing heavy at its top, and is named in `app.COMMANDS`.
Results go to standard output, all else to standard error: see `output`.
"""

from __future__ import annotations


def main() -> None:
    """Run the command line; the entry point of `hubscout` and `python -m hubscout`."""
    from hubscout.cli.app import app

    app()


__all__ = ["main"]
