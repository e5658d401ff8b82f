"""The end of the program: at once when all is said and saved, for taking libraries apart takes up to half a second."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class QuickExit:
    """Ends the process in its very last step, with the status that the program ended with.

    Threads were waited for by then, and whatever else is registered for the end has been done. Who has registered
    something before the program began, such as a tool that watches it, is not passed over: then, and after an error
    that nobody caught, the interpreter ends as ever, but for its search for garbage, which takes a second with torch.
    """

    status: int | None = None

    def run(self, program: Callable[[], object]) -> None:
        """Run the program, which ends by `sys.exit`."""
        first = getattr(atexit, "_ncallbacks", lambda: 1)() == 0  # not for certain in every Python
        atexit.register(self._leave if first else gc.freeze)  # which is the last one if it is the first
        try:
            program()
        except SystemExit as error:
            if error.code is None or isinstance(error.code, int):
                self.status = (error.code or 0) & 0xFF
            raise

    def _leave(self) -> None:
        gc.freeze()
        if self.status is None:
            return
        try:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        except (AttributeError, OSError, ValueError):  # who read it has gone, which the interpreter tells
            return
        os._exit(self.status)
