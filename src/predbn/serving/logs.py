"""Logs as JSON, one object per line, on stderr."""

from __future__ import annotations

import json
import logging
import sys
import time
from datetime import datetime, timezone

_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "color_message", "taskName", "_ray_timestamp_ns"}
"""Attributes of every log record; others were given as `extra`."""


class JsonFormatter(logging.Formatter):
    """Time, level, event, and the `extra` of the event."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **{key: value for key, value in vars(record).items() if key not in _STANDARD},
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class RateLimit(logging.Filter):
    """Lets through so many records of each event per second; the next one says how many were left out.

    Clients can cause any event as often as they like. Those that were asked for are complete.
    """

    ASKED_FOR = "request", "batch"
    PER_SECOND = 10

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, tuple[int, int]] = {}
        """The last second of each event, and how many there were in it."""

    def filter(self, record: logging.LogRecord) -> bool:
        second = int(time.monotonic())
        if record.msg in self.ASKED_FOR:
            return True
        last, seen = self._seen.get(record.msg, (second, 0))
        if last != second:
            if seen > self.PER_SECOND:
                record.left_out = seen - self.PER_SECOND
            seen = 0
        self._seen[record.msg] = second, seen + 1
        return seen < self.PER_SECOND


def log_as_json(level: str) -> None:
    """Write the logs of the server, of uvicorn and Python's warnings as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(RateLimit())
    logging.captureWarnings(True)
    for name, logger_level in (("predbn.serving", level.upper()), ("uvicorn", "WARNING"), ("py.warnings", "WARNING")):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logger_level)
