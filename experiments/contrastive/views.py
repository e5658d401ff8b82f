"""Random views of a batch of small images, where the images already are: one set of parameters an image, few kernels.

All colour changes of an image are one affine map of its RGB values. Hue is a rotation of the colour plane of YIQ and
grey is its saturation set to zero; brightness, contrast, saturation and hue come in this fixed order, not a random one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

TO_YIQ = ((0.299, 0.587, 0.114), (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112))


@dataclass(frozen=True)
class Augmentation:
    """How far views of an image may differ; zeros leave it as it is."""

    smallest_area: float = 1.0
    """Of a random crop with a ratio between 3/4 and 4/3, which is scaled back to the whole size."""
    shift: float = 0.0
    """Of the whole image, as a share of its side, zeros coming in: the usual augmentation of supervised CIFAR."""
    jitter: float = 0.0
    """Brightness, contrast and saturation are multiplied by 1 ± this at most."""
    hue: float = 0.0
    """At most this share of a turn."""
    jitter_probability: float = 1.0
    grey_probability: float = 0.0
    blur_probability: float = 0.0
    mirror: bool = True
    """Every other image, left to right."""

    def __call__(self, images: Tensor) -> Tensor:
        """Float views between 0 and 1, channels last, of a batch of bytes."""
        x = images.float().div_(255)
        if self.mirror or self.shift or self.smallest_area < 1:
            x = self.crop(x)
        if self.jitter or self.hue or self.grey_probability:
            x = self.recolour(x)
        if self.blur_probability:
            x = self.blur(x)
        return x.contiguous(memory_format=torch.channels_last)

    def crop(self, x: Tensor) -> Tensor:
        """A random part of each image at the size of the whole."""
        n, u = len(x), torch.rand(6, len(x), device=x.device)
        area = self.smallest_area + (1 - self.smallest_area) * u[0]
        ratio = torch.exp((2 * u[1] - 1) * math.log(4 / 3)) if self.smallest_area < 1 else torch.ones_like(area)
        width, height = (area * ratio).sqrt().clamp(max=1), (area / ratio).sqrt().clamp(max=1)
        theta = torch.zeros(n, 2, 3, device=x.device)
        theta[:, 0, 0] = width * (1 - 2 * (u[2] < 0.5 * self.mirror).float())
        theta[:, 1, 1] = height
        theta[:, 0, 2] = (2 * u[3] - 1) * (1 - width + 2 * self.shift)
        theta[:, 1, 2] = (2 * u[4] - 1) * (1 - height + 2 * self.shift)
        return F.grid_sample(x, F.affine_grid(theta, list(x.shape), align_corners=False), align_corners=False)

    def recolour(self, x: Tensor) -> Tensor:
        """Jitter and grey as one 3×3 matrix and one offset an image."""
        n, u = len(x), torch.rand(6, len(x), device=x.device)
        chosen = (u[4] < self.jitter_probability).float()
        brightness, contrast, saturation = 1 + self.jitter * chosen * (2 * u[:3] - 1)
        saturation = saturation * (u[5] >= self.grey_probability)
        angle = 2 * math.pi * self.hue * chosen * (2 * u[3] - 1)
        to_yiq, from_yiq = colour_maps(x.device)
        turn = torch.zeros(n, 3, 3, device=x.device)
        turn[:, 0, 0] = 1
        turn[:, 1, 1] = turn[:, 2, 2] = saturation * angle.cos()
        turn[:, 1, 2], turn[:, 2, 1] = -saturation * angle.sin(), saturation * angle.sin()
        matrix = from_yiq @ turn @ to_yiq * (brightness * contrast)[:, None, None]
        grey = (x.mean((2, 3)) @ to_yiq[0]) * brightness
        offset = (1 - contrast) * grey
        return (matrix @ x.flatten(2) + offset[:, None, None]).clamp_(0, 1).view_as(x)

    def blur(self, x: Tensor) -> Tensor:
        """A Gaussian of three by three pixels and a standard deviation between 0.1 and 1."""
        u = torch.rand(2, len(x), 1, 1, 1, device=x.device)
        side = torch.exp(-0.5 / (0.1 + 0.9 * u[0]) ** 2) * (u[1] < self.blur_probability)
        middle, side = 1 / (1 + 2 * side), side / (1 + 2 * side)
        across = F.pad(x, (1, 1, 0, 0), mode="replicate")
        x = middle * x + side * (across[..., :-2] + across[..., 2:])
        down = F.pad(x, (0, 0, 1, 1), mode="replicate")
        return middle * x + side * (down[..., :-2, :] + down[..., 2:, :])


@cache
def colour_maps(device: torch.device) -> tuple[Tensor, Tensor]:
    """RGB to YIQ and back; made once, since every copy to the device waits for it."""
    back = np.linalg.inv(np.array(TO_YIQ))
    return torch.tensor(TO_YIQ, device=device), torch.tensor(back, dtype=torch.float32, device=device)
