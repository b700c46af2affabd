"""
1,797 handwritten digits as 8x8 images: 1,500 to learn from, 297 to test with. And a network that tells them apart.

The images are the test set of "Optical Recognition of Handwritten Digits" (E. Alpaydin and C. Kaynak, UCI Machine
Learning Repository, CC BY 4.0). A line of digits.csv.gz has 64 pixels from 0 to 16, and the digit.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

FOR_TEST = 297


def digits(*, for_test: bool) -> tuple[Tensor, Tensor]:
    """The images [N, 64], from 0 to 1, and the digits [N]."""
    table = np.loadtxt(Path(__file__).with_name("digits.csv.gz"), delimiter=",", dtype=np.float32)
    order = np.random.default_rng(0).permutation(len(table))
    rows = torch.from_numpy(table[order[:FOR_TEST] if for_test else order[FOR_TEST:]])
    return rows[:, :64] / 16, rows[:, 64].long()


def network() -> nn.Module:
    """Any module will do."""
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def accuracy(module: nn.Module) -> float:
    """The share of the test images that the module tells right."""
    images, wanted = digits(for_test=True)
    with torch.no_grad():
        return float((module(images).argmax(dim=1) == wanted).float().mean())
