"""The one exception of this room."""


class AdaptationError(ValueError):
    """A model, a strategy or a batch that the method cannot work with; the message says what to do."""
