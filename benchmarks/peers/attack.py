"""Rows that are chosen to harm the predictions of the other rows of their batch.

Batch statistics couple the rows of a batch, so that whoever owns some of its rows can steer the predictions of the
others. This is the "distribution invading attack" (Wu et al. 2023, "Uncovering adversarial risks of test-time
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
from dataclasses import dataclass
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

    def losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """What the attacker lowers in each of G batches, [G], from logits [G, rows, classes] and labels [G, rows]."""
        if self.kind == "targeted":
            return F.cross_entropy(logits[:, 0], target_class(logits, labels), reduction="none")
        others = slice(None, -self.malicious)
        loss = F.cross_entropy(logits[:, others].transpose(1, 2), labels[:, others], reduction="none")
        return -loss.clamp(max=_LOSS_LIMIT).mean(1)

    def run(self, predict: Predict, images: Tensor, labels: Tensor) -> Tensor:
        """The images as floats, the malicious rows of each batch replaced. `predict` must not remember what it sees.

        `images` are one batch or several, one after the other; each is attacked for itself, but all in one pass.
        """
        labels = labels.unflatten(0, (-1, self.rows))
        batches = images.float().unflatten(0, (-1, self.rows))
        benign = batches[:, : -self.malicious]
        rows = torch.full_like(batches[:, -self.malicious :], PIXELS / 2)
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
                rows = (rows.detach() - step * gradient.sign()).clamp(0, PIXELS)
        return torch.cat([benign, best_rows], 1).flatten(0, 1)


def target_class(logits: Tensor, labels: Tensor) -> Tensor:
    """The class that the first row of each batch shall be predicted as, [G]."""
    return (labels[:, 0] + 1) % logits.shape[2]


PUBLISHED = {
    "targeted": Attack("targeted", rows=200, malicious=40, steps=100, reach=100 / 255),
    "everyone": Attack("everyone", rows=100, malicious=10, steps=40, reach=4.0),
}


@torch.no_grad()
def outcomes(attack: Attack, predict: Predict, images: Tensor, labels: Tensor) -> list[dict[str, float]]:
    """What the attack achieves on each batch, and what the same batch would be predicted as without it.

    success     1 if the chosen row is predicted as the class that the attacker wants (targeted only)
    error       of the benign rows under attack
    unattacked  their error if the other rows are the batch's own
    """
    in_batches = labels.unflatten(0, (-1, attack.rows))
    before, after = (predict(x).unflatten(0, (-1, attack.rows)) for x in (images, attack.run(predict, images, labels)))
    columns = {
        name: (logits.argmax(2) != in_batches)[:, : -attack.malicious].float().mean(1)
        for name, logits in (("error", after), ("unattacked", before))
    }
    if attack.kind == "targeted":
        columns["success"] = (after[:, 0].argmax(1) == target_class(after, in_batches)).float()
    rows = zip(*(values.tolist() for values in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]
