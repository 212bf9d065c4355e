"""Predict batches of any classes: a module around a model that was adapted with `auto`.

A batch of few classes differs from clean data although nothing has shifted. So there are several explanations of what
the layers see, and each one gets a pass through the model:

    cautious   the batch may hold any classes, so that a difference between classes counts as noise;
    mixed      it has the classes of the source, and all of the difference is shift;
    few        it has the classes that the pass before has predicted, and only what they do not explain is shift.

The passes of `few` are only made if the cautious pass predicts few classes: if their shares π are further from the
shares π_s of the source than twice the distance that n examples have on average,

    ‖π − π_s‖² > 2·(1 − ‖π_s‖²)/n.

A wrong explanation leaves the model in doubt. With the doubt u = 1 − the mean confidence of a pass, the prediction is

    p = Σ u⁻¹⁶·p_pass / Σ u⁻¹⁶.

A pass with a tenth more doubt than another one has a fifth of its weight. Doubt alone would believe a model that is
wrong and sure: a shift may make it call every digit an 8. But the digits do not look like eights. If `few` leaves more
than three times the difference d in the last layer (step 1 of `auto`) that `mixed` leaves, `mixed` alone predicts.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, MutableMapping
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import DataParallel
from torch.utils._pytree import tree_map

from predbn.common import AdaptationError

from ..adapt import adapt
from ..adaptation import Adaptation
from ..forward import Wrapper, entries_of
from ..layer import adapted_layers
from ..layers import is_batch_norm, unwrapped
from ..segments import Segments
from ..strategies.base import Strategy, find_strategy
from ..tracing import is_tracing
from .auto import Auto
from .calibration import GROUP_SIZE, MAX_CLASSES, MAX_GROUPS, Calibration
from .composition import Composition, is_class_scores, predicted_classes, source_shares
from .passes import BatchPass, running

T = TypeVar("T")

_DOUBT_EXPONENT = 16
_MIN_DOUBT = 1e-4
"""Added to u, so that passes without any doubt have equal weights."""
_MAX_DIFFERENCE = 3.0
"""How much more `few` may leave unexplained than `mixed`."""
_UNEVENNESS = 2.0
"""How many times the expected ‖π − π_s‖² of n examples makes the predicted classes few."""


class _Prediction(NamedTuple):
    """The output of a pass, what `predicted_classes` says about it, d, and how its rows are divided."""

    output: Any
    shares: Tensor
    doubt: Tensor
    size: Tensor
    difference: Tensor
    segments: Segments | None


class AutoPredictor(Wrapper):
    """Predicts each batch several times, so that `auto` can tell a change of classes from a shift.

        predbn.calibrate(model, loader)
        predictor = predbn.AutoPredictor(model)
        predictor(images)

    The output are logarithms of probabilities, combined from two passes, or from `passes` of them if a batch seems to
    hold few classes. The model is adapted in place with `auto`, for which `options` are those of `predbn.adapt`. It
    must return the scores of classes, [examples, classes], and be calibrated with classes; otherwise its output is that
    of one pass, with a warning. While batch norm layers are in training mode, it is called once, as it is.

    Forward hooks, and whatever else the model does in a call, run once in each pass, in graphs always `passes` times.
    All calls but the last get copies of the tensors in its arguments.
    """

    def __init__(self, model: nn.Module, *, passes: int = 4, **options: Any) -> None:
        super().__init__()
        strategy = Auto(passes=passes)
        if isinstance(model, DataParallel):
            raise AdaptationError(
                "the replicas of DataParallel run in threads of their own, where a pass does not know what the one "
                "before has found; give the model itself, and use DataParallel(predbn.AutoPredictor(model))"
            )
        if isinstance(model, nn.Module) and is_batch_norm(unwrapped(model)):
            raise AdaptationError("a batch norm layer predicts no classes; use predbn.adapt(layer, 'auto')")
        self.model = adapt(model, Auto(), **options)
        self.passes = strategy.passes
        self.training = model.training
        self._has_warned = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        layers = [(layer, adaptation) for _, layer, adaptation in adapted_layers(self.model)]
        adaptation = next((a.shared for _, a in layers if isinstance(a.shared.strategy, Auto)), None)
        is_training = any(layer.training for layer, _ in layers if is_batch_norm(layer))
        if adaptation is None or is_training or self.passes == 1:
            return self.model(*args, **kwargs)
        passes: list[_Prediction] | None = None
        if adaptation.classes is not None:
            passes = self._passes_but_mixed(adaptation, adaptation.classes, args, kwargs)
        elif any(a.calibration for _, a in layers):
            self._warn("the calibration has no classes")
        with running(BatchPass(adaptation, None, is_last=True)) as batch_pass:
            output = self.model(*args, **kwargs)
        if passes is None:
            return output
        assert adaptation.classes is not None
        mixed = _prediction(output, batch_pass)
        is_few = _is_few(adaptation.classes, passes[0])
        return _combined(passes[0], mixed, passes[1:], is_few).to(output.dtype)

    def _passes_but_mixed(
        self, adaptation: Adaptation, clean: Calibration, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[_Prediction] | None:
        """The cautious pass, and those of `few` if they are needed; None if the model does not predict classes."""
        composition, passes = Composition(), []
        for _ in range(self.passes - 1):
            with running(BatchPass(adaptation, composition, is_last=False)) as batch_pass:
                output = self.model(*_copied(args), **_copied(kwargs))
            rows = None if batch_pass.segments is None else batch_pass.segments.examples
            is_compared = batch_pass.difference is not None
            if not is_compared or not is_class_scores(output) or rows not in (None, output.shape[0]):
                self._warn("the model does not return scores of classes, one row for each example")
                return None
            prediction = _prediction(output, batch_pass)
            passes.append(prediction)
            if len(passes) == 1 and not _is_needed(_is_few(clean, prediction), adaptation):
                break
            composition = Composition(prediction.shares, prediction.doubt)
        return passes

    def _warn(self, reason: str) -> None:
        if not self._has_warned and not is_tracing():
            self._has_warned = True
            warnings.warn(
                f"AutoPredictor makes one pass, because {reason}: the model must give one row of class scores per "
                f"example, for at most {MAX_CLASSES} classes, and for more than {MAX_GROUPS} classes calibration "
                f"needs {2 * GROUP_SIZE} examples or more",
                UserWarning,
                stacklevel=4,
            )


def predictor(model: nn.Module, strategy: str | Strategy, **options: Any) -> nn.Module:
    """The adapted model; for `auto` with several passes, the module around it that makes them."""
    strategy = find_strategy(strategy)
    if strategy.pass_count == 1:
        return adapt(model, strategy, **options)
    return AutoPredictor(model, passes=strategy.pass_count, **options)


def _prediction(output: Tensor, batch_pass: BatchPass) -> _Prediction:
    shared, segments, difference = batch_pass.adaptation, batch_pass.segments, batch_pass.difference
    shares, doubt, size = predicted_classes(output, segments, sync=shared.sync, process_group=shared.process_group)
    assert difference is not None
    difference = difference.detach().to(doubt) if isinstance(difference, Tensor) else difference
    return _Prediction(output, shares, doubt, size, torch.ones_like(doubt) * difference, segments)


def _is_few(clean: Calibration, cautious: _Prediction) -> Tensor:
    """Whether few classes are predicted, […, 1]; of groups of classes where there are many."""
    assert clean.class_sizes is not None
    source = source_shares(clean.class_sizes.to(cautious.shares))
    distance = (clean.group_shares(cautious.shares) - source).square().sum(-1, keepdim=True)
    return distance > _UNEVENNESS * (1 - source.square().sum()) / cautious.size.clamp(min=1)


def _is_needed(is_few: Tensor, adaptation: Adaptation) -> bool:
    """Whether passes are made that depend on data. Graphs cannot decide; and processes that share a batch make the same
    passes, also where rounding differs between them."""
    is_recorded = is_few.is_cuda and torch.cuda.is_current_stream_capturing()
    return is_tracing() or is_recorded or adaptation.sync or bool(is_few.any())


def _combined(cautious: _Prediction, mixed: _Prediction, few: list[_Prediction], is_few: Tensor) -> Tensor:
    """The logarithms of the combined probabilities. Passes of `few` do not count in segments without few classes."""
    passes = [cautious, mixed, *few]
    is_refuted = is_few & (passes[-1].difference > _MAX_DIFFERENCE * mixed.difference)
    is_used = torch.stack([~is_refuted, torch.ones_like(is_few), *[is_few & ~is_refuted] * len(few)])
    log_weights = torch.stack([-_DOUBT_EXPONENT * (p.doubt.detach() + _MIN_DOUBT).log() for p in passes])
    log_weights = log_weights.masked_fill(~is_used, -torch.inf).log_softmax(0)
    if cautious.segments is not None:
        log_weights = torch.stack([cautious.segments.repeat(weights) for weights in log_weights])
    log_probabilities = torch.stack([p.output.float().log_softmax(1) for p in passes])
    return (log_probabilities + log_weights.view(len(passes), -1, 1)).logsumexp(0)


def _copied(value: T) -> T:
    """Arguments with tensors of their own, so that a model may change its input."""
    copied: T = tree_map(_copied_leaf, value)
    return copied


def _copied_leaf(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, Iterator):
        raise AdaptationError(
            f"the model was called with a {type(value).__name__}, which can be read only once, and AutoPredictor "
            "predicts a batch several times; give a list or a tensor"
        )
    entries = entries_of(value)
    if entries is None:
        return value
    copied = copy.copy(value)
    for name, entry in entries.items():
        if isinstance(copied, MutableMapping):
            copied[name] = _copied(entry)
        else:
            object.__setattr__(copied, name, _copied(entry))
    return copied
