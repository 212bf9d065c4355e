"""Are the stored statistics of a model right, has new data shifted, and what should be done?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

from predbn.common import DiagnosticError, Progress
from predbn.norm import BatchForward, Forward, PreparedAdaptation, device_of, unwrapped

from .batches import Batches, DataSet
from .examination import Examination, LayerExamination
from .finding import Finding, format_names
from .fit import fit_findings, fit_limit, stored_distances
from .inputs import layers_by_name
from .measurement import MIN_EXAMPLES, LayerMoments, Measurement, distance_between, measure
from .shift_findings import shift_findings, shift_limit
from .stored_statistics import has_statistics, stored_in, stored_statistics_findings


def examine(
    model: nn.Module,
    reference: DataSet | Iterable[Any] | None = None,
    data: DataSet | Iterable[Any] | None = None,
    *,
    batch_size: int = 100,
    forward: Forward | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Examination:
    """Examine the batch norm layers of a model, without labels, and say what to do. The model is left unchanged.

    Without a reference, only stored statistics and settings are checked. A hundred examples of reference and data are
    enough for all but the smallest shifts.

    reference    clean data, ideally training data as the model saw it: do the stored statistics fit it?
    data         data to predict: has it shifted away from the reference, in which layers, and does it matter?
    batch_size   data is regrouped into batches of this size; lists of images, and batches for a `forward` of yours,
                 are left as they are
    forward      called as forward(model, batch) to predict a batch, if the default does not fit: tensors, tuples that
                 begin with what `forward` of the model requires, and dictionaries and dataclasses by its names
    seed         for the order of data sets of `predbn.data`; loaders and lists of batches are read in their order
    progress     called with (batches done, batches in total; 0 if the number is unknown)
    """
    if not isinstance(model, nn.Module):
        raise DiagnosticError(f"Expected the model to be a torch.nn.Module, but got a {type(model).__name__}.")
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 2:
        raise DiagnosticError(f"batch_size must be an integer of at least 2, but got {batch_size!r}.")
    if data is not None and reference is None:
        raise DiagnosticError(
            "Expected a reference with the data: without clean data, stale statistics cannot be distinguished from "
            "shifted data."
        )
    model = unwrapped(model)
    layers = layers_by_name(model)
    if not layers:
        return Examination(0)
    PreparedAdaptation(model, "train")  # refuses what cannot be examined: lazy, scripted and quantised layers
    findings = list(stored_statistics_findings(model, layers))
    if reference is None or any(finding.code == "weights not finite" for finding in findings):
        return Examination(
            len(layers), _problems_first(findings), [_row(name, i, layers[name]) for i, name in enumerate(layers, 1)]
        )
    sets = {"reference": reference, "data": data}
    batches = {
        name: Batches(given, batch_size, device_of(model), seed) for name, given in sets.items() if given is not None
    }
    measured = _measure_all(BatchForward(model, forward), batches, progress)
    on_reference, on_data = measured["reference"], measured.get("data")
    distances = stored_distances(on_reference, layers)
    broken = {name for finding in findings if finding.breaks_predictions for name in finding.layers}
    findings += fit_findings(layers, on_reference, distances, broken)
    findings += _not_called(layers, on_reference)
    is_broken = any(finding.breaks_predictions for finding in findings)
    names = list(dict.fromkeys([*on_reference.recomputed, *layers]))
    rows = []
    for depth, name in enumerate(names, start=1):
        shift = _shift_of(name, layers[name], on_reference, on_data, is_broken)
        rows.append(_row(name, depth, layers[name], distances.get(name), shift))
    if on_data is not None:
        findings += shift_findings(rows, on_reference.predictions, on_data.predictions, is_broken=is_broken)
    return Examination(
        len(layers),
        _problems_first(findings),
        rows,
        {name: _channels_of(layers[name], name, measured) for name in distances},
        {name: measurement.predictions.to_dict() for name, measurement in measured.items()},
        {name: measurement.examples for name, measurement in measured.items()},
    )


def _measure_all(forward: BatchForward, sets: dict[str, Batches], progress: Progress | None) -> dict[str, Measurement]:
    counts = [batches.count() for batches in sets.values()]
    total, done = sum(counts) if all(counts) else 0, 0

    def after_batch() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    return {name: measure(forward, batches, name, after_batch) for name, batches in sets.items()}


def _problems_first(findings: list[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: not finding.is_problem)


def _row(
    name: str,
    depth: int,
    layer: Any,
    fit: tuple[float, float] | None = None,
    shift: tuple[float, float, float | None] | None = None,
) -> LayerExamination:
    channels = layer.running_mean.numel() if has_statistics(layer) else layer.num_features
    values: dict[str, float | None] = {}
    if fit is not None:
        values |= {"fit": fit[0], "fit_noise": fit[1], "fit_limit": fit_limit(fit[1])}
    if shift is not None:
        values |= {"shift": shift[0], "shift_noise": shift[1], "shift_limit": shift_limit(shift[1])}
        values |= {"shift_recomputed": shift[2]}
    return LayerExamination(name, depth, channels, **values)


def _shift_of(
    name: str, layer: Any, reference: Measurement, data: Measurement | None, is_broken: bool
) -> tuple[float, float, float | None] | None:
    """The distance from reference to data, its noise, and the distance with recomputed statistics.

    A network with wrong statistics sees little of any shift, so the first is that with recomputed statistics then.
    """
    if data is None or name not in reference.recomputed or name not in data.recomputed:
        return None
    eps = float(layer.eps)
    recomputed = distance_between(reference.recomputed[name], data.recomputed[name], eps)
    before, after = (side.stored.get(name, LayerMoments()) for side in (reference, data))
    if is_broken or min(before.examples, after.examples) < MIN_EXAMPLES:
        return *recomputed, None
    return *distance_between(before, after, eps), recomputed[0]


def _channels_of(layer: Any, name: str, measured: dict[str, Measurement]) -> dict[str, tuple[list[float], list[float]]]:
    channels = {}
    for side, measurement in measured.items():
        if name in measurement.recomputed:
            mean, var = measurement.recomputed[name].statistics
            stored_mean, stored_var = (t.detach().to(mean) for t in stored_in(layer))
            scale = stored_var.clamp(min=0) + float(layer.eps)
            ratio = ((var + float(layer.eps)) / scale).sqrt()
            channels[side] = ((mean - stored_mean) / scale.sqrt()).tolist(), ratio.tolist()
    return channels


def _not_called(layers: dict[str, Any], measurement: Measurement) -> list[Finding]:
    names = tuple(name for name in layers if name not in measurement.recomputed)
    if not names:
        return []
    return [
        Finding(
            "not called",
            "note",
            names,
            f"The data did not reach {format_names(names, len(layers))}, so nothing is known about the fit there.",
            "Nothing if these layers are for training only, as auxiliary heads are.",
        )
    ]
