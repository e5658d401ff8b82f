"""`statistics_of`: sums from a fit, to add further samples to."""

from __future__ import annotations

import numpy as np

from hubscout.evidence.array_backend import add_product, to_host
from hubscout.evidence.block import Block
from hubscout.evidence.convergence import kept_spectrum
from hubscout.evidence.evidence import Evidence
from hubscout.evidence.statistics import Statistics


def statistics_of(evidence: Evidence) -> Statistics:
    """The sums that an evidence with a spectrum came from, to rounding, in one block; to add to.

    Without centring the sums of features and targets themselves are not known: they are zero here, so that the result
    is only good for another maximisation without centring.
    """
    spectrum = kept_spectrum(evidence)
    values, basis = to_host(spectrum.squared_singular_values), to_host(spectrum.basis)
    scored = np.array([name not in evidence.unscored for name in evidence.targets])
    statistics = Statistics(evidence.kind, evidence.targets, feature_dim=evidence.feature_dim)
    shifts = (np.zeros(evidence.feature_dim), np.zeros(len(scored)))
    if evidence.feature_mean is not None:
        shifts = (evidence.feature_mean, evidence.intercept + evidence.weights @ evidence.feature_mean)
    block = Block.empty(*shifts)
    block.n, block.rows = evidence.n, round(evidence.n)
    block.upper_gram = add_product(block.upper_gram, (basis * np.sqrt(values)).T)
    block.cross[scored] = (to_host(spectrum.projections) * np.sqrt(values)) @ basis.T
    block.target_squares[scored] = to_host(spectrum.target_squares)
    # Batches of classes and labels are added as the zeros and ones that they are.
    statistics.blocks[0] = block if evidence.kind == "regression" else block.about(block.shift, 0 * block.target_shift)
    return statistics
