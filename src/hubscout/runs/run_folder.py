"""`resume` and `overwrite`, which mean the same for every run that is kept in a folder.

Without either, the same call goes on with the run in its folder, or starts one where there is none; another run that is
there is refused. `resume` insists that there is a run to go on with. `overwrite` starts anew in its place.
"""

from __future__ import annotations

from pathlib import Path

from hubscout.errors import InputError


def check_folder(out: Path | str | None, *traces: str, resume: bool, overwrite: bool) -> None:
    """Refuse wishes that contradict each other or the folder.

    Args:
        out: the folder of the run.
        traces: patterns of files that a run of this sort leaves from its first result on.
        resume: whether there must be a run to go on with.
        overwrite: whether to start anew.

    Raises:
        InputError: both are wanted, or `resume` without a run in `out`.

    """
    if resume and overwrite:
        raise InputError("resume=True and overwrite=True exclude each other.")
    if resume and out is None:
        raise InputError("resume=True needs the folder of the run: give out=...")
    if resume and out is not None and not any(any(Path(out).glob(trace)) for trace in traces):
        raise InputError(f"resume=True: {out} holds no run to go on with. Give its folder, or leave resume=True out.")
