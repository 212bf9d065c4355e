"""Prometheus metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from .batcher import BatchReport
from .stream_record import StreamRecord

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_STREAM_METRICS = {
    "distance": "Distance of a stream's last batch from the source statistics, in standard deviations; mean of layers.",
    "believed": "The share of that distance that the strategy corrects: 0 for train, about 1 for batch.",
    "examples": "Examples of a stream so far.",
}
"""Properties of a `StreamRecord`."""
MAX_STREAMS = 100
"""How many streams, the most recently used, have time series: Prometheus keeps every series that it has seen."""


class Metrics:
    """The counters, histograms and gauges of one server."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter("predbn_requests", "Requests by HTTP status.", ["status"], registry=registry)
        self.latency = Histogram(
            "predbn_request_seconds",
            "How long a request to predict takes, from its header to its answer.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.refused_connections = Counter(
            "predbn_refused_connections", "Connections that were closed because there were too many.", registry=registry
        )
        ProcessCollector(registry=registry)
        self.rows = Counter("predbn_rows", "Rows that were predicted.", registry=registry)
        self._batch_rows = Histogram("predbn_batch_rows", "Rows of a batch.", buckets=_ROWS, registry=registry)
        self._waiting = Histogram(
            "predbn_waiting_seconds", "How long a request waits for its batch.", buckets=_SECONDS, registry=registry
        )
        self._compute = Histogram(
            "predbn_compute_seconds", "How long the model takes for a batch.", buckets=_SECONDS, registry=registry
        )
        self.queue = Gauge("predbn_queue_rows", "Rows that wait.", registry=registry)
        self.streams = Gauge("predbn_streams", "Streams in memory.", registry=registry)
        self.events = Counter(
            "predbn_stream_events",
            "Streams that were evicted from memory or forgotten, and files that were damaged or could not be read.",
            ["event"],
            registry=registry,
        )
        self.checkpoints = Counter(
            "predbn_checkpoints", "Checkpoints that succeeded or failed.", ["outcome"], registry=registry
        )
        for event in ("evicted", "forgotten", "damaged", "unreadable"):
            self.events.labels(event)
        for outcome in ("succeeded", "failed"):
            self.checkpoints.labels(outcome)

    def count_batch(self, report: BatchReport) -> None:
        """Count a batch."""
        self.rows.inc(report.rows)
        self._batch_rows.observe(report.rows)
        self._compute.observe(report.seconds)
        for seconds in report.waited:
            self._waiting.observe(seconds)

    def watch_streams(self, newest: Callable[[], Iterable[StreamRecord]]) -> None:
        """Add the drift of these streams, collected whenever the metrics are read."""
        self._registry.register(_Collected(lambda: _stream_families(newest())))

    @property
    def unanswered(self) -> int:
        """How many requests were cut off or refused (503), or had clients that went away (499)."""
        values = (self._registry.get_sample_value("predbn_requests_total", {"status": s}) for s in ("0", "499", "503"))
        return int(sum(value or 0 for value in values))

    def families(self) -> list[Metric]:
        """All metrics."""
        return list(self._registry.collect())


def with_replicas(own: Sequence[Metric], replicas: Sequence[Sequence[Metric] | None]) -> list[Metric]:
    """The metrics of a server with replicas: theirs with the label `replica`, and those of its own process.

    A replica that does not answer has no metrics, and `predbn_replica_up` is 0.
    """
    up = GaugeMetricFamily("predbn_replica_up", "Whether a replica answers.", labels=["replica"])
    families: dict[str, Metric] = {family.name: family for family in (up, *own)}
    for number, replica_families in enumerate(replicas):
        up.add_metric([str(number)], replica_families is not None)
        for family in replica_families or ():
            joined = families.setdefault(
                family.name, Metric(family.name, family.documentation, family.type, family.unit)
            )
            for sample in family.samples:
                joined.samples.append(Sample(sample.name, {**sample.labels, "replica": str(number)}, sample.value))
    return list(families.values())


def as_text(families: Sequence[Metric]) -> bytes:
    """Metrics in the text format of Prometheus."""
    return generate_latest(_Collected(lambda: families))


class _Collected(Collector):
    """Metrics that a function computes whenever they are read."""

    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families()


def _stream_families(records: Iterable[StreamRecord]) -> list[Metric]:
    families = {
        name: GaugeMetricFamily(f"predbn_stream_{name}", text, labels=["stream"])
        for name, text in _STREAM_METRICS.items()
    }
    for record in records:
        for name, family in families.items():
            if (value := getattr(record, name)) is not None:
                family.add_metric([record.id], value)
    return list(families.values())
