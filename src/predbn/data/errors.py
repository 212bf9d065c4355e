"""The one exception of this room."""


class DataError(ValueError):
    """A data set that is not what it should be; the message names the place and what was expected there."""
