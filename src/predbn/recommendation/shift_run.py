"""Old camera, new camera: measure all strategies on a real shift, and say which one to use."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import nn

from predbn.common import (
    DiagnosticError,
    EvaluationError,
    ProgressWithNote,
    read_json,
    showing_progress,
    write_json,
    write_text,
)
from predbn.data import ReferenceAndData
from predbn.diagnostics import Examination, Finding, examine
from predbn.evaluation import Engine, InProcess, Job, Model, Plan, Results, evaluate
from predbn.models import Classifier, ModelInfo, Preprocessing, match_channels

from .real_shift import RealShift, real_shifts
from .sentences import python_lines, real_shift_sentences

STRATEGIES = ("train", "batch", "prior(N=16)", "ema", "auto", "auto_stream", "auto(passes=4)")
BATCH_SIZES = (16, 100)
ORDER = "official"
"""As the images came."""

EXAMINATION = "examination.json"
_EXAMINED = 1000
"""How many pictures of each side are examined: layers in which the data has shifted are seen with fewer."""


@dataclass(frozen=True, eq=False)
class ShiftResults:
    """The results of `evaluate_shift`.

    results    the tables, as those of any run
    shifts     one comparison per model, method, order and seed; mostly there is one
    findings   of the examination of the first model: whether its statistics are right and the data has shifted
    files      the names of the new pictures, if they are from a folder
    """

    results: Results
    shifts: list[RealShift]
    findings: list[str]
    files: tuple[str, ...] = ()

    @property
    def shift(self) -> RealShift:
        """The comparison, if there is only one."""
        if len(self.shifts) != 1:
            raise EvaluationError(f"there are {len(self.shifts)} comparisons: choose one of .shifts.")
        return self.shifts[0]

    def sentences(self) -> list[str]:
        """Which strategy to use and by how much it helps, why, and whether the data has shifted."""
        return [*(sentence for shift in self.shifts for sentence in real_shift_sentences(shift)), *self.findings]

    def python(self) -> str:
        """The Python that does what is recommended to `model`; empty if the model is left alone."""
        return "\n".join(python_lines(self.shifts[0]))

    def changes(self) -> pd.DataFrame:
        """The images that the recommended strategy predicts in another way than `train`, with their files.

        If none is recommended, it is the last one that was measured, which is the least simple.
        """
        shift = self.shifts[0]
        chosen = shift.recommendation.chosen if shift.recommendation is not None else None
        last = shift.strategies[-1]
        key = (last.strategy, last.batch_size)
        if chosen is not None:
            key = (chosen.candidate.strategy, chosen.candidate.batch_size or 0)
        table = shift.changes(*key)
        for column in {"train", "strategy", "label"} & set(table.columns):
            names = [shift.classes[number] if shift.classes else str(number) for number in table[column]]
            table[column] = names
        if self.files:
            table.insert(0, "file", [self.files[index] for index in table["index"]])
        return table

    def __str__(self) -> str:
        return "\n".join(self.sentences())


def shift_plan(
    models: Sequence[Model | str],
    reference: str,
    data: str,
    *,
    strategies: Sequence[str] | None = None,
    batch_sizes: Sequence[int | str] | None = None,
    orders: Sequence[str] | None = None,
    **options: Any,
) -> Plan:
    """The plan for a real shift, with the strategies, batch sizes and order that are compared by default.

    `reference` and `data` are folders, and `options` further fields of `Plan`.
    """
    chosen = tuple(dict.fromkeys(("train", *(strategies or STRATEGIES))))
    return Plan(
        models=tuple(models),  # type: ignore[arg-type]
        data=data,
        reference=reference,
        strategies=chosen,
        batch_sizes=tuple(batch_sizes or BATCH_SIZES),  # type: ignore[arg-type]
        orders=tuple(orders or (ORDER,)),
        **options,
    )


def evaluate_shift(
    model: str | nn.Module,
    reference: str | Path | ReferenceAndData,
    data: str | Path | None = None,
    *,
    preprocessing: Preprocessing | None = None,
    out: str | Path | None = None,
    device: str | torch.device = "auto",
    progress: bool | ProgressWithNote = True,
    **options: Any,
) -> ShiftResults:
    """Measure strategies on images that have really shifted, and say which one to use.

    model          a reference such as "timm:resnet50.tv_in1k", a `Classifier`, or a network together with its
                   `preprocessing`
    reference      a folder of images that the model knows; strategies are calibrated on it
    data           a folder of images to predict: with class folders accuracy is measured, otherwise what would
                   change. Both may be given in memory, as a `ReferenceAndData` instead of `reference`
    out            the folder for results; started again with the same arguments, it continues. By default nothing is
                   kept
    device         "auto", "cpu" or "cuda"
    progress       False for silence, or a function (done, total, note)
    options        `strategies`, `batch_sizes`, `orders`, `methods`, `images`, `class_map`, `unlabelled` and further
                   fields of `Plan`
    """
    in_memory: dict[str, Classifier] = {}
    name = model if isinstance(model, str) else "model"
    if isinstance(model, Classifier):
        in_memory[name] = model
    elif isinstance(model, nn.Module):
        in_memory[name] = _classifier(model, preprocessing)
    chosen = Model(name, options.pop("weights", None), preprocessing if isinstance(model, str) else None)
    pair = reference if isinstance(reference, ReferenceAndData) else None
    if pair is None and data is None:
        raise EvaluationError("give the data beside the reference: two folders, or one ReferenceAndData.")
    names = (pair.reference.name, pair.data.name) if pair is not None else (str(reference), str(data))
    plan = shift_plan([chosen], *names, **options)
    engine = InProcess(str(device))
    with tempfile.TemporaryDirectory() as temporary:
        return run_shift(plan, out or temporary, engine, data=pair, models=in_memory, progress=progress)


def run_shift(
    plan: Plan,
    out: str | Path,
    engine: Engine | None = None,
    *,
    data: ReferenceAndData | None = None,
    models: Mapping[str, Classifier] | None = None,
    progress: bool | ProgressWithNote = True,
) -> ShiftResults:
    """Carry out the plan of a real shift, and examine the first model; `changes.csv` is written to `out` too.

    `engine`, `data`, `models` and `progress` are those of `predbn.evaluation.evaluate`.
    """
    engine = engine or InProcess()
    with showing_progress(progress, "evaluating") as report:
        results = evaluate(plan, out, engine=engine, data=data, models=models, progress=report)
        job = Job(plan, "cpu" if engine.device == "auto" else engine.device, data, None, dict(models or {}))
        sentences = _examine(job, Path(out) / EXAMINATION, report)
    source = job.source.data
    assert isinstance(source, ReferenceAndData)
    measured = ShiftResults(results, real_shifts(results), sentences, source.data.files)
    write_text(Path(out) / "changes.csv", measured.changes().to_csv(index=False))
    return measured


def read_findings(folder: Path) -> list[str]:
    """The findings of the examination in a folder, in words; empty if there was none."""
    try:
        examination = read_json(
            folder / EXAMINATION, error=EvaluationError, remedy="delete it, and it is computed again"
        )
    except FileNotFoundError:
        return []
    return [str(sentence) for sentence in examination.get("sentences", [])]


def _examine(job: Job, path: Path, progress: ProgressWithNote | None) -> list[str]:
    """The findings about the first model, in words; computed once for a folder, whose models and data do not change."""
    if known := read_findings(path.parent):
        return known
    pair = job.source.data
    assert isinstance(pair, ReferenceAndData)
    model = job.cache.model(job.member_names[0])
    if progress is not None:
        progress(0, None, "examining")
    # A random subset: it fits in memory, and the first images may not be representative.
    sides = [
        images.take(torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[:_EXAMINED])
        for images in (pair.reference, pair.data)
    ]
    try:
        examination = examine(model, *sides)
        sentences, details = _sentences(examination, is_labelled=pair.data.is_labelled), examination.to_dict()
    except DiagnosticError as error:  # there may be too few pictures
        sentences, details = [f"The model was not examined. {error}"], {}
    write_json(path, {"sentences": sentences, **details})
    return sentences


def _sentences(examination: Examination, *, is_labelled: bool) -> list[str]:
    """The findings in words. What accuracy shows, and what to do about a shift, was measured if there are labels."""

    def has_advice(finding: Finding) -> bool:
        return finding.breaks_predictions or not (is_labelled or finding.is_problem)

    return [
        f"{finding.sentence} {finding.remedy}" if has_advice(finding) else finding.sentence
        for finding in examination.findings
    ] or [examination.verdict]


def _classifier(network: nn.Module, preprocessing: Preprocessing | None) -> Classifier:
    if preprocessing is None:
        raise EvaluationError(
            "give the preprocessing of the network too, as in Preprocessing((224, 224), mean, std), with mean and std "
            "for pixels from 0 to 255."
        )
    preprocessing, classes = match_channels("the model", network, preprocessing)
    return Classifier(network, ModelInfo("model", classes, preprocessing))
