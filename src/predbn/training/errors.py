"""The one exception of this room."""


class TrainingError(ValueError):
    """A training run that cannot start or go on; the message says why and what to do."""
