"""Is a ranking any good: rank correlation, relative performance. Statistics only: imports no other folder."""

from hubscout.evaluation.agreement import Agreement, bootstrap_interval, evaluate, relative_at_k, top_k_accuracy
from hubscout.evaluation.correlation import kendall_tau, permutation_p_value, weighted_tau

__all__ = [
    "Agreement",
    "bootstrap_interval",
    "evaluate",
    "kendall_tau",
    "permutation_p_value",
    "relative_at_k",
    "top_k_accuracy",
    "weighted_tau",
]
