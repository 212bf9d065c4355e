"""The one exception of this room."""


class ReportError(ValueError):
    """Something that cannot be drawn; the message says what is missing and what to do."""
