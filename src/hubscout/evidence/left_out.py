"""What a model predicts for samples that it did not see, without fitting it again.

With K = I + FFᵀ/t and an intercept with a flat prior, P = K⁻¹ - K⁻¹11ᵀK⁻¹ / 1ᵀK⁻¹1, and a sample that is left out is
missed by (Py)_i / P_ii, exactly, at the same t. Of K⁻¹ only the entries of the rows that are asked for are needed. With
u_i the row of U, s = t/(t + σ²), z = Uᵀy and a = Uᵀ1:

    (K⁻¹y)_i = y_i - Σ u_i z (1 - s)    (K⁻¹1)_i = 1 - Σ u_i a (1 - s)    (K⁻¹)_ii = 1 - Σ u_i² (1 - s)

So a few thousand of a million rows are enough for an accuracy with its interval, each held out from a fit to all
others. Rows S that belong together, as the words of a sentence do, are left out together: P_SS⁻¹ (Py)_S.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from hubscout.errors import InputError
from hubscout.evidence.array_backend import chunks, namespace, to_device_of, to_float64, to_host
from hubscout.evidence.checks import check_features
from hubscout.evidence.evidence import Evidence
from hubscout.evidence.spectrum import kept

NUMBERS_AT_ONCE = 1 << 18
"""Of targets × rows of a group × directions: 2 MB, which a processor has at hand."""
SPARE = 1e-9
"""What must be left of (K⁻¹)_ii, as a share, for the other rows to say anything of this one."""


def left_out_predictions(
    evidence: Evidence, features: object, targets: np.ndarray, groups: np.ndarray | None = None
) -> np.ndarray:
    """What all other samples predict for rows of the fit, (m, C), by the model with an intercept.

    `features` are (m, D) rows that were fitted, `targets` their labels, (m, C): 0/1 for classes, numbers for
    regression. With `groups`, (m,), rows of one group are left out together; they must be all of it, side by side.
    Where a row alone decides its prediction, and for an unscored target, it is the base rate without it.

    >>> features, labels = np.arange(6.0)[:, None], np.arange(6.0)[:, None] ** 2
    >>> from hubscout.evidence import logme
    >>> left_out_predictions(logme(features, labels, kind="regression"), features, labels)[:2].round(2).ravel().tolist()
    [-6.34, 2.17]
    """
    fit = evidence.over_base_rates
    spectrum, mean = kept(fit.spectrum), fit.feature_mean
    rows = check_features(features, feature_dim=evidence.feature_dim)
    if targets.shape != (rows.shape[0], len(evidence.targets)):
        raise InputError(f"targets must be {(int(rows.shape[0]), len(evidence.targets))}; they are {targets.shape}.")
    n = evidence.n
    parts = list(chunks(*rows.shape)) if groups is None else _runs(groups)
    alone = base_rates_without(fit.target_mean, n, targets, groups)
    explained = np.isfinite(fit.ratio)
    if not explained.any():
        return alone
    values = spectrum.squared_singular_values
    xp = namespace(values)
    ratio = to_device_of(fit.ratio[explained], values)[:, None]
    constant = to_device_of(fit.constant, values)[None, :]
    means = to_device_of(fit.target_mean[explained], values)
    projections = spectrum.projections[np.flatnonzero(explained[evidence.scored])] - means[:, None] * constant
    shrunk = ratio / (values[None, :] + ratio)
    rest = float(n - (constant**2).sum())
    rest = rest if rest > n * n * np.finfo(np.float64).eps else 0.0
    level = rest + (constant**2 * shrunk).sum(1)
    crossed = constant * projections
    slope = ((crossed * shrunk).sum(1) if rest == 0 else -(crossed * (1 - shrunk)).sum(1)) / level
    # With as many directions as observations nothing is outside them; what centring took away, P takes away as well.
    full, repeats = spectrum.rank == spectrum.n, bool(spectrum.repeated.any())
    result = alone.copy()
    for part in parts:
        block = to_float64(to_device_of(rows[part], values))
        block = block if mean is None else block - to_device_of(mean, block)
        left = (block @ spectrum.basis) / xp.sqrt(values)[None, :]
        known = to_device_of(targets[part][:, explained], values) - means[None, :]
        one = left @ (constant * shrunk).T
        missed = left @ (projections * shrunk).T
        outside = xp.clip(1 - (left**2).sum(1), min=0.0)[:, None] * (not full)
        if repeats:  # the rows that occur once are inside the directions, but for rounding
            outside = xp.where(outside > SPARE, outside, 0 * outside)
        if not full:
            beside = (outside > 0) | (not repeats)  # (rows, 1)
            one = one + xp.where(beside, (1 - left @ constant[0])[:, None], 0 * one)
            missed = missed + xp.where(beside, known - left @ projections.T, 0 * missed)
        missed = missed - one * slope[None, :]
        if groups is not None:
            # As (targets, rows of the group, rows of the group).
            unit = to_device_of(np.eye(int(left.shape[0])), values)
            at_once = max(NUMBERS_AT_ONCE // (left.shape[0] * left.shape[1]), 1)
            some = (shrunk[start : start + at_once, None, :] for start in range(0, len(shrunk), at_once))
            inner = xp.concatenate([(left[None, :, :] * one) @ left.T for one in some])
            if not full:
                inner = inner + xp.where(beside & beside.T, unit - left @ left.T, 0 * unit)
            inner = inner - one.T[:, :, None] * one.T[:, None, :] / level[:, None, None]
            # Each row in its own size: where features fit every label all is small but for samples that occur again.
            size = xp.sqrt(xp.clip(inner.diagonal(0, 1, 2), min=np.finfo(np.float64).tiny))
            inner = inner / size[:, :, None] / size[:, None, :] + SPARE * unit
            predicted = means + known - (xp.linalg.solve(inner, (missed.T / size)[:, :, None])[:, :, 0] / size).T
        else:
            whole = left**2 @ shrunk.T + outside
            spare = whole - one**2 / level[None, :]
            safe = spare > SPARE * whole
            predicted = means[None, :] + known - missed / xp.where(safe, spare, xp.ones_like(spare))
            predicted = xp.where(safe, predicted, to_device_of(alone[part][:, explained], values))
        result[part, explained] = to_host(predicted)
    return result


def base_rates_without(
    target_mean: np.ndarray, n: float, targets: np.ndarray, groups: np.ndarray | None = None
) -> np.ndarray:
    """The base rates of all n samples but the row, or but its group, for every row of (m, C) targets."""
    if groups is None:
        return (n * target_mean - targets) / max(n - 1, 1)
    result = np.empty_like(targets)
    for part in _runs(groups):
        own = targets[part]
        result[part] = (n * target_mean - own.sum(0)) / max(n - len(own), 1)
    return result


def _runs(groups: np.ndarray) -> list[slice]:
    """Where the same group stands side by side."""
    edges = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(groups)]
    return [slice(start, stop) for start, stop in pairwise(edges)]
