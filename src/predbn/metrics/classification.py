"""Accuracy, and the two proper scoring rules: negative log-likelihood and Brier score."""

from __future__ import annotations

import torch
from torch import Tensor

from .checks import check_positive, prepare_inputs
from .exact_sums import UNIT_BITS

_SQUARE_BITS = 52
"""Squares of probabilities are rounded to multiples of 2^-52, about the precision of float64 near 1."""


def accuracy(probabilities: Tensor, labels: Tensor, *, top: int = 1) -> Tensor:
    """The share of examples whose label is among the `top` most probable classes.

    Here and below `probabilities` are [N, classes] and `labels` int64 [N].
    """
    check_positive("top", top)
    return (ranks(*prepare_inputs(probabilities, labels)) < top).double().mean()


def ranks(probabilities: Tensor, labels: Tensor) -> Tensor:
    """How many classes come before the label if classes are sorted by falling probability.

    Classes of equal probability are sorted by their index. So rank 0 is what argmax gives, and the ranks are the same
    on every device, while `topk` does not specify the order of ties.
    """
    label_probability = probabilities.gather(1, labels[:, None])
    is_before = torch.arange(probabilities.shape[1], device=labels.device) < labels[:, None]
    return ((probabilities > label_probability) | ((probabilities == label_probability) & is_before)).sum(1)


def nll(probabilities: Tensor, labels: Tensor) -> Tensor:
    """The negative log-likelihood −ln p_y in nats; infinite if a label has probability 0 (arguments as for `accuracy`).

    For logits use `torch.nn.functional.cross_entropy`, which stays finite where the softmax rounds to 0.
    """
    return -of_label(*prepare_inputs(probabilities, labels)).log().mean()


def brier(probabilities: Tensor, labels: Tensor) -> Tensor:
    """The Brier score Σ_c (p_c − [c = y])², between 0 and 2.

    Some tables divide it by the number of classes: .000514 there is .514 here for 1000 classes.
    """
    wide, labels = prepare_inputs(probabilities, labels)
    return wide.scatter_add(1, labels[:, None], torch.full_like(wide[:, :1], -1)).square().sum(1).mean()


def brier_units(probabilities: Tensor, labels: Tensor) -> Tensor:
    """`brier` of each example as a multiple of 2^-32, for exact sums.

    It is Σ_c p_c² − 2 p_y + 1 with every term rounded to 2^-52, so the sum over classes is one of integers and does
    not depend on the order in which a device adds. (`brier` squares the differences instead: more precise when the
    score is close to 0, and differentiable.)
    """
    scale = 1 << _SQUARE_BITS
    squares = (probabilities * probabilities * scale).round().long().sum(1)
    exact = squares - (2 * of_label(probabilities, labels) * scale).round().long() + scale
    shift = _SQUARE_BITS - UNIT_BITS
    return (exact + (1 << (shift - 1))) >> shift


def of_label(values: Tensor, labels: Tensor) -> Tensor:
    return values.gather(1, labels[:, None])[:, 0]
