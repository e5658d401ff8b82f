"""What is known not to work, with what happens and why. `docs/models.md` tells the same to users.

A name is here for as long as it fails: tests and sweep fail when one of these works, or another one does not.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gap:
    """`symptom` is a part of the error, or of what is wrong with the features."""

    symptom: str
    reason: str


IMAGES: dict[str, Gap] = {
    "dinat": Gap("natten", "needs the compiled package natten, which transformers imports for it"),
    "metaclip_2": Gap("Unrecognized configuration", "AutoModel does not open its vision tower without the other one"),
    "perceiver": Gap("takes 'inputs'", "the base model takes a byte array that no image processor makes"),
}

TEXT: dict[str, Gap] = {
    "nystromformer": Gap("is invalid for input of size", "takes only texts as long as its segments say, not shorter"),
}

TIMM: dict[str, Gap] = {
    "hrnet*": Gap("timm says", "a stage gives one map per resolution; timm states the width after further layers"),
    "samvit_*_patch16": Gap("stated", "timm states the width before the neck, which narrows it to 256"),
}
"""By pattern of the architecture's name."""
