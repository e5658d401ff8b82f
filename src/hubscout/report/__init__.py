"""What a person looks at, made from saved results alone: one HTML page, and pictures for papers.

Nothing here computes a score or opens a model; the page makes no network requests.
"""

from hubscout.report.page import render, write_report
from hubscout.report.saved_run import Run, open_run

__all__ = ["Run", "open_run", "render", "write_report"]
