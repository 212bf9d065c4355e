"""The exceptions of the package.

Every one of them means that the user gave something that cannot work; its message says in one sentence what is wrong,
where, and what to do. The command line prints a `PredbnError` or an `OSError` as one sentence; anything else is a bug
and keeps its traceback.
"""

from __future__ import annotations


class PredbnError(ValueError):
    """The base class: an input that cannot be used. A `ValueError`, so that callers may catch it as one."""


class DeviceError(PredbnError):
    """A device that does not exist or cannot be used here."""


class MissingPackageError(PredbnError, ImportError):
    """A package that a part of predbn needs is not installed. An `ImportError`, so that callers may catch it as one."""

    def __init__(self, sentence: str, *, name: str) -> None:
        super().__init__(sentence)
        self.name = name


class AdaptationError(PredbnError):
    """A model, a strategy or a batch that the method cannot work with."""


class MetricError(PredbnError):
    """Predictions or labels that cannot be scored."""


class ShiftError(PredbnError):
    """A shift that does not exist, or images that it cannot be applied to."""


class DataError(PredbnError):
    """A data set that is not what it should be."""


class ModelError(PredbnError):
    """A model that cannot be loaded or does not fit."""


class MethodError(PredbnError):
    """A method that cannot be found, fitted or applied."""


class EvaluationError(PredbnError):
    """A plan, a run or its results that cannot be used."""


class DiagnosticError(PredbnError):
    """A model or data that cannot be examined."""


class TrainingError(PredbnError):
    """A training that cannot be started or continued."""


class ServingError(PredbnError):
    """A server that cannot be started, or a request that it cannot answer."""


class ReportError(PredbnError):
    """Something that cannot be drawn."""


class PaperError(PredbnError):
    """An experiment of the paper that cannot be run, checked or drawn."""


class NotMeasured(PaperError):
    """Results that a claim or a figure needs are missing; the message says why."""


def first_line(error: BaseException) -> str:
    """What an error of another library says, in one line: the first one, or the error's class if it says nothing."""
    return next(iter(str(error).splitlines()), type(error).__name__)
