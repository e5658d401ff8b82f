"""NCE: the negative conditional entropy of the labels given the source classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from hubscout.metrics import inputs
from hubscout.metrics.leep import mean_log
from hubscout.metrics.metric_registry import Score, metric


@metric("nce", needs=("logits",))
def nce(logits: Any, targets: Any) -> Score:
    """Negative conditional entropy of the labels given the source class that the model predicts.

        NCE = −H(Y | Z) = Σ_{y,z} P̂(y, z) log P̂(y | z),        z_i = argmax_z logits_iz

    P̂ are relative frequencies. Range: −H(Y) ≤ NCE ≤ 0; 0 when each predicted source class holds one target class.
    Invariant to any increasing transformation of the logits, to the order of rows and to relabelling of either side;
    equal logits count for the first class. The standard error is that
    of the mean of log P̂(y_i | z_i), with P̂ taken as given. Cost: O(nZ).

    Tran, Nguyen, Hassner, Transferability and Hardness of Supervised Classification Tasks, ICCV 2019.

    Args:
        logits: (n, Z) outputs of the source head.
        targets: n class ids.

    Returns:
        The score, in nats per sample.

    Raises:
        InputError: arrays that do not fit together or are not finite.

    Example:
        >>> import numpy as np
        >>> nce(np.eye(3)[[0, 1, 2, 2]], np.array([0, 0, 1, 1])).value
        0.0

    """
    logits = inputs.real_matrix(logits, "logits")
    ids, classes = inputs.class_ids(targets, len(logits))
    predicted = logits.argmax(axis=1)
    joint = np.zeros((classes, logits.shape[1]))
    np.add.at(joint, (ids, predicted), 1.0)
    return mean_log(np.log(joint[ids, predicted] / joint.sum(axis=0)[predicted]))
