"""The one exception of this room."""


class DiagnosticError(ValueError):
    """A model or data that cannot be looked into; the message says why and what to do."""
