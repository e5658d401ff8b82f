"""Features with a large common offset, as they are, without centring.

With centred features X and their mean μ, F = X + 1μᵀ and FᵀF = G + nμμᵀ, where G = XᵀX. Once n‖μ‖² is far above G,
adding the two up leaves nothing of G. But then one eigenvector v lies close to μ, and its eigenvalue λ = np² + g, with
p = μᵀv and g = vᵀGv, is far from all others, which are those of FᵀF outside v. With P = I - vvᵀ and ρ = Pμ:

    P FᵀF P = P G P + nρρᵀ          P Fᵀy = P Xᵀy + nȳρ          ρ = -P G v / (np)

The last equation says that v is an eigenvector; it gives ρ without taking μ apart, so that no large number is left in
any of the three. Of y, with k = vᵀXᵀy, that direction leaves ‖y‖² - z_v² = ‖y - ȳ‖² + (nȳ²g - 2nȳpk - k²) / λ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hubscout.evidence.array_backend import Array, add_outer, namespace
from hubscout.evidence.block import Block

LARGE = 1e4
"""n‖μ‖² over the sum of squares about the mean, from where on the two are not added up. Below, four digits of ε go."""
STEPS = 8
"""Of power iteration. Each brings the angle down by the same factor, of at least LARGE."""


@dataclass(frozen=True)
class MeanDirection:
    """The direction v in which the features are long because of their mean."""

    vector: Array
    """v, (D,)."""
    square: float
    """λ, its squared singular value."""
    along: float
    """p, the mean along v."""
    deviation: float
    """g, the sum of squares about the mean along v."""
    across: Array
    """ρ, (D,): the mean outside v."""
    product: Array
    """G v, (D,)."""

    def left_over(self, squares: Array, target_mean: Array, inner: Array, n: float) -> Array:
        """‖y‖² - z_v² of targets with these squares about their means, (C,); `inner` is k."""
        more = target_mean * (target_mean * (n * self.deviation) - inner * (2 * n * self.along))
        return squares + (more / self.square - inner * (inner / self.square))

    def split(self, centred: Array, target_mean: Array, along: Array) -> tuple[Array, Array]:
        """z_v, (C,), and what it leaves of (n, C) targets, from centred ones; `along` is X v, (n,)."""
        n, inner = int(along.shape[0]), along @ centred
        slope = (inner + (n * self.along) * target_mean) / self.square
        level = (target_mean * self.deviation - inner * self.along) / self.square
        return slope * self.square**0.5, centred - along[:, None] * slope[None, :] + level[None, :]


def is_far(square: Array, n: float, spread: float, *, times: float = LARGE) -> bool:
    """Whether a mean μ with this ‖μ‖² is so far from zero that it must be held apart; `spread` is the trace of G."""
    return n * float(square) > times * max(spread, 0.0)  # which rounding may have made negative


def mean_direction(multiply: Callable[[Array], Array], mean: Array, n: float) -> MeanDirection:
    """V for features with this mean, which is far from zero; `multiply` is the product of G and a vector."""
    xp = namespace(mean)
    length = float(xp.linalg.vector_norm(mean))
    far = n * length * length
    start = mean / length
    vector = start
    for _ in range(STEPS):
        vector = multiply(vector) / far + start * float(start @ vector)
        vector = vector / float(xp.linalg.vector_norm(vector))
    product = multiply(vector)
    along, deviation = length * float(start @ vector), float(vector @ product)
    across = (deviation * vector - product) / (n * along)
    return MeanDirection(vector, n * along * along + deviation, along, deviation, across, product)


def without(direction: MeanDirection, centred: Block, target_mean: Array, last: float) -> tuple[Array, Array]:
    """The upper triangle of P FᵀF P + τ vvᵀ and P Fᵀy, (C, D), of centred sums, whose Gram is overwritten.

    τ, here `last`, is to be large enough to make v the last eigenvector.
    """
    v, across = direction.vector, direction.across
    half = 0.5 * (direction.deviation + last) * v - direction.product
    upper = add_outer(centred.upper_gram, v, half)
    upper = add_outer(upper, 0.5 * centred.n * across, across)
    inner = centred.cross @ v
    cross = centred.cross - inner[:, None] * v[None, :] + (centred.n * target_mean)[:, None] * across[None, :]
    return upper, cross
