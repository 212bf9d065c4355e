"""The one exception of this room."""


class MethodError(ValueError):
    """A method that cannot be found, fitted or applied; the message says why and what to do."""
