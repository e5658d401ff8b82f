"""Which model will be best once it is tuned, and that model, tuned, within a budget of time.

`race()`: the evidence of every model, then rungs of real tuning for fewer and fewer (model × learning rate) arms, then
the winner to its end. Nothing here knows how a model is trained: that is `hubscout.tuning`.
"""

from hubscout.racing.arms import Arm, Look
from hubscout.racing.outcome import Race
from hubscout.racing.race_models import race

__all__ = ["Arm", "Look", "Race", "race"]
