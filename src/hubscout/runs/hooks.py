"""What a result can do by way of folders that come after it: the one place where `runs` names them.

The methods of a result are short for functions elsewhere (`ranking.report(path)` for `write_report`). They are found
by name when they are called, so that reading a record imports none of those folders.
"""

from __future__ import annotations

import importlib
from typing import Any

HOMES = {
    "Run": "hubscout.report.saved_run",
    "write_report": "hubscout.report.page",
    "write_check": "hubscout.report.page",
    "draw": "hubscout.report.pictures",
    "metric_agreement": "hubscout.ranking.evaluate_ranking",
    "evaluate_ranking": "hubscout.ranking.evaluate_ranking",
    "renderables": "hubscout.ranking.terminal_table",
    "as_text": "hubscout.ranking.terminal_table",
    "as_html": "hubscout.ranking.terminal_table",
}


def call(name: str, *arguments: Any, **options: Any) -> Any:
    """Call one of the functions in `HOMES`."""
    return getattr(importlib.import_module(HOMES[name]), name)(*arguments, **options)
