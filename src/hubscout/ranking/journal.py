"""The run folder of a ranking while it is being made: what is finished is on disk at once.

`ranking.json` is written anew after every model (`complete` is false until the end) and `events.jsonl` gets one line
an event, so that a kill loses one model at most and others can watch.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hubscout.credentials import strip_credentials
from hubscout.errors import RunError
from hubscout.ranking.ranking import Ranking
from hubscout.ranking.row import Row
from hubscout.ranking.storage import FILE, load_ranking, save_ranking

EVENTS = "events.jsonl"


class Journal:
    """Writes a run folder; without a folder it keeps nothing."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.problem: str | None = None
        """Why the last writing failed."""

    def begin(self, *, task: str, settings: Mapping[str, Any], overwrite: bool) -> dict[str, Row]:
        """Open the folder; the rows of an interrupted run of the same question are given back, to go on from.

        A folder that holds the answer to another question is left alone unless `overwrite` says otherwise.
        """
        if self.folder is None:
            return {}
        rows: dict[str, Row] = {}
        if (self.folder / FILE).exists() and not overwrite:
            earlier = load_ranking(self.folder)
            different = _differences(earlier, task, settings)
            if different:
                raise RunError(
                    f"{self.folder} holds another ranking ({'; '.join(different)}). "
                    "Choose another folder, or overwrite it (overwrite=True, --overwrite)."
                )
            if not earlier.complete and not earlier.stages:
                rows = {row.identifier: row for row in earlier.rows}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / EVENTS).write_text("", encoding="utf-8")
        except OSError as error:
            raise RunError(f"The run folder {self.folder} cannot be written: {error.strerror}.") from error
        return rows

    def note(self, event: str, **facts: Any) -> None:
        """Append one event."""
        if self.folder is None:
            return
        line = json.dumps({"time": round(time.time(), 3), "event": event, **facts}, allow_nan=False)
        try:
            with open(self.folder / EVENTS, "a", encoding="utf-8") as file:
                file.write(strip_credentials(line) + "\n")
        except OSError as error:
            self.problem = error.strerror or str(error)

    def keep(self, ranking: Ranking) -> None:
        """Write the ranking as it stands; where that fails (a full disk), the work goes on and `problem` says why."""
        if self.folder is None:
            return
        self.problem = None
        try:
            save_ranking(ranking, self.folder)
        except OSError as error:
            self.problem = error.strerror or str(error)


def _differences(earlier: Ranking, task: str, settings: Mapping[str, Any]) -> list[str]:
    found = []
    if earlier.task.fingerprint != task:
        found.append(f"of the task {earlier.task.name!r}, whose data is not this data")
    plain = json.loads(json.dumps(settings))
    for name in sorted({*plain, *earlier.settings}):
        there, here = earlier.settings.get(name), plain.get(name)
        if there != here:
            found.append(f"{name} is {there!r} there and {here!r} here")
    return found
