"""What goes wrong in this room."""


class PaperError(ValueError):
    """Something about the paper's experiments cannot be done: one sentence on what, where, and what to do."""


class NotMeasured(PaperError):
    """Results that something needs are not there; the message says why."""
