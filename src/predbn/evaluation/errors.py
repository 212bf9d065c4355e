"""The one exception of this room."""


class EvaluationError(ValueError):
    """A plan, a run or its results that cannot be used; the message says what, where, and what to do."""
