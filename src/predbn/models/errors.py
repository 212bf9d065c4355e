"""The one exception of this room."""


class ModelError(ValueError):
    """A model that cannot be had or does not fit; the message names the reference and what to do."""
