"""The one exception of this room."""


class MetricError(ValueError):
    """Predictions or labels that cannot be scored; the message says which and what to give instead."""
