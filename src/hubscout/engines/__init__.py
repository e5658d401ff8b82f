"""Where the work runs: this process, or a Ray cluster.

An engine runs independent jobs and gives their results back as they finish. It knows nothing of models or data, and
those who hand it jobs do not know which engine they have.
"""

from hubscout.engines.engine import ENGINES, Engine, open_engine
from hubscout.engines.job import Job, JobResult
from hubscout.engines.local import LocalEngine

__all__ = ["ENGINES", "Engine", "Job", "JobResult", "LocalEngine", "open_engine"]
