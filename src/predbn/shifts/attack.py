"""Rows that are chosen to harm the predictions of the other rows of their batch.

Batch statistics couple the rows of a batch, so that an attacker who controls some rows can change the predictions of
the others. This is the "distribution invading attack" (Wu et al. 2023, "Uncovering adversarial risks of test-time
adaptation", ICML) in the form in which MedBN (Park et al. 2024, CVPR) measures it: projected gradient descent on the
malicious rows with the signs of the gradients, from grey images, where any pixel may become anything from 0 to 255. The
attacker knows the network, the defence, the labels and all other rows; gradients flow through the statistics.

    targeted   40 of 200 rows make one chosen row, the first, be predicted as the class after its own:
               lower its cross-entropy to that class, 100 steps of 1/255
    everyone   10 of 100 rows raise the mean cross-entropy of all others, each counted up to 5 as published,
               40 steps of 1/10

Unlike in the published attack, the rows with the best loss of all steps are used and not those of the last step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

Predict: TypeAlias = Callable[[Tensor], Tensor]
"""The logits of all rows of one batch, or of several batches one after the other."""

PIXELS = 255.0
_LOSS_LIMIT = 5.0


@dataclass(frozen=True)
class Attack:
    """An attack on a batch of `rows` rows, the last `malicious` of which belong to the attacker.

    With fewer steps than published the steps are longer, so that pixels can be moved as far.
    """

    kind: Literal["targeted", "everyone"]
    rows: int
    malicious: int
    steps: int
    reach: float
    """How far all steps together can move a pixel, as a share of the range of pixels."""

    def on_batches_of(self, rows: int) -> Attack:
        """The attack on batches of another size, with the same share of malicious rows.

        At least one row is malicious and at least one is not, so that a single row is not attacked.
        """
        malicious = min(max(1, round(rows * self.malicious / self.rows)), rows - 1)
        return replace(self, rows=rows, malicious=malicious)

    @property
    def benign(self) -> slice:
        """The rows of a batch that are not the attacker's."""
        return slice(self.rows - self.malicious)

    def losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """What the attacker lowers in each of G batches, [G], from logits [G, rows, classes] and labels [G, rows]."""
        if self.kind == "targeted":
            return F.cross_entropy(logits[:, 0], target_class(labels[:, 0], logits.shape[2]), reduction="none")
        others = logits[:, self.benign].transpose(1, 2)
        loss = F.cross_entropy(others, labels[:, self.benign], reduction="none")
        return -loss.clamp(max=_LOSS_LIMIT).mean(1)

    def run(self, predict: Predict, images: Tensor, labels: Tensor) -> Tensor:
        """The images as floats, the malicious rows of each batch replaced. `predict` must not remember what it sees.

        `images` are one batch or several, one after the other; each is attacked for itself, but all in one pass.
        """
        labels = labels.unflatten(0, (-1, self.rows))
        batches = images.float().unflatten(0, (-1, self.rows))
        benign = batches[:, self.benign]
        rows = torch.full_like(batches[:, self.benign.stop :], PIXELS / 2)
        best_rows, best_losses = rows, torch.full([len(rows)], torch.inf, device=rows.device)
        step = PIXELS * self.reach / self.steps
        for number in range(self.steps + 1):
            rows = rows.detach().requires_grad_(True)
            with torch.enable_grad():
                logits = predict(torch.cat([benign, rows], 1).flatten(0, 1))
                losses = self.losses(logits.unflatten(0, (-1, self.rows)), labels)
                total = losses.sum()
            is_better = losses.detach() < best_losses
            best_losses = torch.where(is_better, losses.detach(), best_losses)
            best_rows = torch.where(is_better.view(-1, *[1] * (rows.dim() - 1)), rows.detach(), best_rows)
            if number < self.steps:
                (gradient,) = torch.autograd.grad(total, rows)
                if not gradient.any():  # no step would change a pixel, for example because rows do not meet
                    break
                rows = (rows.detach() - step * gradient.sign()).clamp(0, PIXELS)
        return torch.cat([benign, best_rows], 1).flatten(0, 1)


def target_class(labels: Tensor, classes: int) -> Tensor:
    """The target class of rows with these labels."""
    return (labels + 1) % classes


ATTACKS = {
    "targeted": Attack("targeted", rows=200, malicious=40, steps=100, reach=100 / 255),
    "everyone": Attack("everyone", rows=100, malicious=10, steps=40, reach=4.0),
}
"""The two attacks by name."""
