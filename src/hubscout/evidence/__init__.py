"""The mathematics: sufficient statistics, spectrum, evidence maximisation, posterior.

Arrays in, dataclasses out: no files of models, no tasks, no torch modules.
"""

from hubscout.evidence.evidence import Evidence
from hubscout.evidence.in_memory import logme
from hubscout.evidence.maximize import maximize_evidence
from hubscout.evidence.statistics import Block, Statistics

__all__ = ["Block", "Evidence", "Statistics", "logme", "maximize_evidence"]
