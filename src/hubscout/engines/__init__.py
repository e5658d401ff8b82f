"""Where the work runs: this process, several of this machine, or a Ray cluster.

An engine runs independent jobs and gives their results back as they finish. It knows nothing of models or data, and
those who hand it jobs do not know which engine they have.
"""

from hubscout.engines.engine import ENGINES, Engine, LocalEngine, open_engine
from hubscout.engines.job import Job, JobResult, Shared, remembered, report
from hubscout.engines.ray_engine import RayEngine

__all__ = [
    "ENGINES",
    "Engine",
    "Job",
    "JobResult",
    "LocalEngine",
    "RayEngine",
    "Shared",
    "open_engine",
    "remembered",
    "report",
]
