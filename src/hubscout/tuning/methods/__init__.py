"""Tuning methods, one file each, behind the interface of `method.py`; `METHODS` knows them by name."""

from hubscout.tuning.methods.b_tuning import BTuning
from hubscout.tuning.methods.distillation import Distillation, DistillWeighted, LogitDistillation
from hubscout.tuning.methods.method import METHODS, FineTune, Method, Preparation
from hubscout.tuning.methods.zoo import ZooTuning

__all__ = [
    "METHODS",
    "BTuning",
    "DistillWeighted",
    "Distillation",
    "FineTune",
    "LogitDistillation",
    "Method",
    "Preparation",
    "ZooTuning",
]
