"""The end of the program: at once when all is said and saved, for taking libraries apart takes up to half a second."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType


@dataclass
class QuickExit:
    """Ends the process in its very last step, with the status that the program ended with.

    Threads were waited for by then, and whatever else is registered for the end has been done. That is for the command
    that ran installed code alone: what others leave to the interpreter, such as a file that is not closed or another
    status, is left to it. Where somebody registered something before the program began, and after an error that nobody
    caught, the interpreter ends too, but for its search for garbage, which takes a second with torch.
    """

    status: int | None = None
    command: ModuleType | None = None
    """The main module, where it is the command's own."""
    is_first: bool = False

    def run(self, program: Callable[[], object]) -> None:
        """Run the program, which ends by `sys.exit`."""
        main = sys.modules["__main__"]
        self.command = main if _is_command(main) else None
        self.is_first = getattr(atexit, "_ncallbacks", lambda: 1)() == 0  # not for certain in every Python
        atexit.register(self._leave)  # which is the last one if it is the first
        try:
            program()
        except SystemExit as error:
            if error.code is None or isinstance(error.code, int):
                self.status = (error.code or 0) & 0xFF
            raise

    def _leave(self) -> None:
        if self.command is not sys.modules["__main__"] or not _ran_installed_code_alone():
            return
        gc.freeze()
        if self.status is None or not self.is_first:
            return
        try:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        except (AttributeError, OSError, ValueError):  # who read it has gone, which the interpreter tells
            return
        os._exit(self.status)


def _is_command(main: ModuleType) -> bool:
    name = main.__spec__.name if main.__spec__ else Path(getattr(main, "__file__", None) or "").stem
    return name in ("hubscout", "hubscout.__main__")


def _ran_installed_code_alone() -> bool:
    from hubscout.light_imports import user_code  # not before Ctrl-C is held
    from hubscout.optional import is_installed

    if user_code.is_set() or sys.stdout is not sys.__stdout__:
        return False
    ours = os.path.join(Path(__file__).parents[1], "")
    modules = [module for name, module in list(sys.modules.items()) if name not in ("__main__", "__mp_main__")]
    files = [str(getattr(module, "__dict__", {}).get("__file__") or ours) for module in modules]
    return all(file.startswith(ours) or is_installed(file) for file in files)
