"""How the value of a metric is written, wherever a person reads it: accuracies in per cent, all others as numbers.

Files that programs read have plain numbers.
"""

from __future__ import annotations

_MOST_DECIMALS = 1e5
"""Numbers from here on, such as errors in euros, are told by their first figures."""


def is_accuracy(metric: str) -> bool:
    """Whether a metric is a share of samples that are right; the split may stand beside its name.

    >>> [is_accuracy(name) for name in ("accuracy", "balanced_accuracy, test", "held-out accuracy", "macro_f1")]
    [True, True, True, False]
    """
    name = metric.partition(",")[0]
    return name == "accuracy" or name.endswith((" accuracy", "_accuracy"))


def metric_text(metric: str, value: float, decimals: int = 4) -> str:
    """A value of a metric.

    >>> metric_text("accuracy", 0.89123), metric_text("r2", 0.89123)
    ('89.1%', '0.8912')
    >>> metric_text("rmse", 12345678.9), metric_text("rmse", 1.5e-12)
    ('1.23457e+07', '1.5e-12')
    """
    if is_accuracy(metric):
        return f"{value:.1%}"
    few = metric.startswith("rmse") and 0 < abs(value) < 1e-3  # in the unit of the labels, which may be small
    return f"{value:.6g}" if few or abs(value) >= _MOST_DECIMALS else f"{value:.{decimals}f}"


def bounds_text(metric: str, low: float, high: float, between: str = ", ", decimals: int = 4) -> str:
    """The ends of an interval, beside a value that has the unit.

    >>> bounds_text("accuracy", 0.871, 0.9), bounds_text("r2", 0.5, 0.75, " to ")
    ('87.1, 90.0', '0.5000 to 0.7500')
    """
    return between.join(metric_text(metric, end, decimals).removesuffix("%") for end in (low, high))


def interval_text(metric: str, value: float, low: float, high: float, decimals: int = 4) -> str:
    """A value with its interval.

    >>> interval_text("accuracy", 0.891, 0.871, 0.9)
    '89.1% [87.1, 90.0]'
    """
    return f"{metric_text(metric, value, decimals)} [{bounds_text(metric, low, high, decimals=decimals)}]"


def difference_text(metric: str, difference: float, *, sign: bool = False) -> str:
    """How far two values of a metric are from each other, in points of per cent for accuracies.

    >>> difference_text("accuracy", 0.0123), difference_text("r2", -0.0123, sign=True)
    ('1.2 points', '-0.0123')
    """
    plus = "+" if sign else ""
    if is_accuracy(metric):
        few = 0 < abs(difference) < 5e-4
        return f"{'under 0.1' if few else format(100 * difference, plus + '.1f')} points"
    return format(difference, f"{plus}.4f" if abs(difference) < _MOST_DECIMALS else f"{plus}.6g")
