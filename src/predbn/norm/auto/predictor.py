"""Predict batches of any classes: a module around a model that was adapted with `auto`.

A batch of few classes differs from clean data although nothing has shifted, and one look at it cannot tell which of the
two is the reason. So the module makes passes over the batch until it knows:

    plain     with the stored statistics. If all layers saw what clean data of the predicted classes looks like, nothing
              has shifted. This is the prediction, bit for bit that of the model before it was adapted;
    cautious  if few classes were predicted. The batch may hold any classes, so that a difference between classes counts
              as noise. It asks again whether they are few;
    few       if they still are: only what they do not explain is a shift. Twice, because the first of these passes
              predicts the classes better than the cautious one;
    mixed     if they are not: the batch has the classes of the source, and all of the difference is a shift.

The prediction is that of the last pass. A layer saw clean data of its classes if chance explains all of the difference,
d/s ≤ 1 with s = 1/n + 1/M and step 0 of `auto`. The predicted classes of n examples are few if

1. their shares π are further from the shares π_s of the source than if the batch held half as many classes,

       ‖π − π_s‖² > ‖π_s‖² + (1 − ‖π_s‖²)/n,

   where the last term is what n examples of all classes have on average, and

2. they explain more than the classes of the source do: the mean of log d/s over the layers is smaller. A model may call
   every digit an 8 because of a shift, but the digits need not look like eights.
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
from ..strategies.base import Strategy, find_strategy
from ..tracing import is_tracing
from .auto import Auto
from .calibration import GROUP_SIZE, MAX_CLASSES, MAX_GROUPS
from .composition import Composition, is_class_scores, predicted_classes, source_shares
from .passes import BatchPass, running

T = TypeVar("T")


class _Prediction(NamedTuple):
    """The output of a pass and, if the model predicts classes, which ones for how many examples, […, 1]."""

    batch_pass: BatchPass
    output: Any
    classes: Composition | None
    size: Tensor | None

    def unexplained(self, classes: Composition | None) -> Tensor:
        """`BatchPass.unexplained`, where the output is: layers may be on other devices."""
        ratios = self.batch_pass.unexplained(classes)
        return ratios if self.size is None else ratios.to(self.size.device)


class AutoPredictor(Wrapper):
    """Predicts each batch once to `passes` times, so that `auto` can tell a change of classes from a shift.

        predbn.calibrate(model, loader)
        predictor = predbn.AutoPredictor(model)
        predictor(images)

    Where nothing has shifted, the output is that of the model before it was adapted, bit for bit. The model is adapted
    in place with `auto`, for which `options` are those of `predbn.adapt`. If it does not return the scores of classes,
    [examples, classes], or was calibrated without them, batches are taken to hold the classes of the source; a warning
    says so. While batch norm layers are in training mode, the model is called once, as it is.

    passes   1 is `auto` without a plain pass; with 2, batches hold the classes of the source; each pass more than 3 is
             one more of *few*

    Forward hooks, and whatever else the model does in a call, run once in each pass; graphs contain them all. All but
    the first get copies of the tensors in the arguments, and only the first changes what other strategies remember.
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
        self._masks: tuple[Tensor, Tensor] | None = None
        self.training = model.training
        self._has_warned = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        layers = [(layer, adaptation) for _, layer, adaptation in adapted_layers(self.model)]
        adaptation = next((a.shared for _, a in layers if isinstance(a.shared.strategy, Auto)), None)
        is_training = any(layer.training for layer, _ in layers if is_batch_norm(layer))
        is_calibrated = any(a.calibration for _, a in layers)
        if adaptation is None or is_training or self.passes == 1 or not is_calibrated:
            return self.model(*args, **kwargs)

        given = _copied((args, kwargs))
        plain = self._predict(BatchPass(adaptation, is_plain=True), args, kwargs)
        unexplained = plain.unexplained(plain.classes)
        is_shifted = (unexplained > 1).any(0)
        if plain.classes is None:
            is_shifted = is_shifted.any(0)
        if not _is_needed(is_shifted, adaptation):
            self._keep(is_few=is_shifted, is_mixed=is_shifted)
            return plain.output

        is_few, few = torch.zeros_like(is_shifted), plain
        if self.passes > 2 and plain.classes is not None:
            is_few = is_shifted & _is_few(plain, unexplained)
            if _is_needed(is_few, adaptation):
                few = self._predict(BatchPass(adaptation, Composition()), *_copied(given))
                is_few = is_few & _is_few(few, few.unexplained(few.classes))
                if _is_needed(is_few, adaptation):
                    for _ in range(self.passes - 2):
                        few = self._predict(BatchPass(adaptation, few.classes), *_copied(given))
        is_mixed, mixed = is_shifted & ~is_few, plain
        if _is_needed(is_mixed, adaptation):
            mixed = self._predict(BatchPass(adaptation), *_copied(given))
        self._keep(is_few, is_mixed)
        return _chosen(plain, (few, is_few), (mixed, is_mixed))

    def _predict(self, batch_pass: BatchPass, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Prediction:
        with running(batch_pass):
            output = self.model(*args, **kwargs)
        shared, segments = batch_pass.adaptation, batch_pass.segments
        if shared.classes is None:
            self._warn("the calibration has no classes")
        elif not is_class_scores(output) or (segments is not None and segments.examples != output.shape[0]):
            self._warn("the model does not return scores of classes, one row for each example")
        else:
            shares, doubt, size = predicted_classes(
                output, segments, sync=shared.sync, process_group=shared.process_group
            )
            return _Prediction(batch_pass, output, Composition(shares, doubt), size)
        return _Prediction(batch_pass, output, None, None)

    @property
    def predbn_passes(self) -> str | None:
        """Which pass predicted the last batch, for `describe`; None before the first batch. Graphs do not change it."""
        if self._masks is None:
            return None
        is_few, is_mixed = self._masks
        names = {"plain": ~(is_few | is_mixed), "few": is_few, "mixed": is_mixed}
        predicted = " and ".join(name for name, mask in names.items() if mask.any())
        return f"The last batch was predicted by the pass '{predicted}'."

    def _keep(self, is_few: Tensor, is_mixed: Tensor) -> None:
        """The masks are read by `predbn_passes`, because reading them here would wait for a GPU."""
        if not _is_recorded(is_few):
            self._masks = is_few, is_mixed

    def _warn(self, reason: str) -> None:
        if not self._has_warned and not is_tracing():
            self._has_warned = True
            warnings.warn(
                f"AutoPredictor takes batches to hold the classes of the source, because {reason}: the model must give "
                f"one row of class scores per example, for at most {MAX_CLASSES} classes, and for more than "
                f"{MAX_GROUPS} classes calibration needs {2 * GROUP_SIZE} examples or more",
                UserWarning,
                stacklevel=5,
            )


def predictor(model: nn.Module, strategy: str | Strategy, **options: Any) -> nn.Module:
    """The adapted model; for `auto` with several passes, the module around it that makes them."""
    strategy = find_strategy(strategy)
    if strategy.pass_count == 1:
        return adapt(model, strategy, **options)
    return AutoPredictor(model, passes=strategy.pass_count, **options)


def _is_few(prediction: _Prediction, unexplained: Tensor) -> Tensor:
    """Whether few classes are predicted, […, 1]; of groups of classes where there are many. `unexplained` is what the
    predicted classes leave."""
    clean, classes, size = prediction.batch_pass.adaptation.classes, prediction.classes, prediction.size
    assert clean is not None
    assert clean.class_sizes is not None
    assert classes is not None
    assert classes.shares is not None
    assert size is not None
    source = source_shares(clean.class_sizes.to(classes.shares))
    distance = (clean.group_shares(classes.shares) - source).square().sum(-1, keepdim=True)
    of_source = source.square().sum()
    is_uneven = distance > of_source + (1 - of_source) / size.clamp(min=1)
    by_classes, by_source = (ratios.log().mean(0) for ratios in (unexplained, prediction.unexplained(None)))
    return is_uneven & (by_classes < by_source)


def _is_needed(mask: Tensor, adaptation: Adaptation) -> bool:
    """Whether a pass is made that depends on data. Graphs cannot decide; and processes that share a batch make the same
    passes, also where rounding differs between them."""
    return _is_recorded(mask) or adaptation.sync or bool(mask.any())


def _is_recorded(mask: Tensor) -> bool:
    """Whether the call is part of a graph, in which masks have no values."""
    return is_tracing() or (mask.is_cuda and torch.cuda.is_current_stream_capturing())


def _chosen(plain: _Prediction, *others: tuple[_Prediction, Tensor]) -> Any:
    """The output of the plain pass, but of another one in the segments for which that was chosen."""
    segments, output = plain.batch_pass.segments, plain.output
    for prediction, mask in others:
        if prediction is plain:
            continue

        def select(chosen: Any, otherwise: Any, mask: Tensor = mask) -> Any:
            if not isinstance(chosen, Tensor):
                return chosen
            rows = mask if segments is None or mask.dim() == 1 else segments.repeat(mask)
            return torch.where(rows.view(-1, *[1] * (chosen.dim() - 1)).to(chosen.device), chosen, otherwise)

        output = tree_map(select, prediction.output, output)
    return output


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
