"""Where the work runs: this process, several of this machine, or a Ray cluster.

An engine runs independent jobs and gives their results back as they finish. It knows nothing of models or data, and
those who hand it jobs do not know which engine they have.
"""

from hubscout.engines.engine import ENGINES, Engine, open_engine
from hubscout.engines.job import Job, JobResult
from hubscout.engines.local import LocalEngine
from hubscout.engines.process_memory import remembered
from hubscout.engines.ray_engine import RayEngine
from hubscout.engines.reporting import report
from hubscout.engines.shared import Shared

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
