"""Numbers for Prometheus: counted in plain integers, put into its words when they are requested.

No label holds an id: a path is shown as its template.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from time import time
from typing import TYPE_CHECKING, final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from chary.service.engine import Engine

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
# Upper ends in seconds; durable decisions take from one to some tens of milliseconds.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
# Numbers of the engine that fall, too.
_GAUGES = ("queued", "commit_seconds")
# Those that have names of their own here.
_APART = ("head", "durable", "open_episodes")
MODES = ("apprentice", "budgeted", "frozen", "stopped")


@final
class Meters:
    """What the server counts about requests, by the template of the path."""

    def __init__(self) -> None:
        self.started = time()
        self._requests: dict[tuple[str, str, int], int] = {}
        self._refused: dict[str, int] = {}
        self._seconds: dict[tuple[str, str], tuple[list[int], list[float]]] = {}
        self.in_flight = 0

    def note(self, method: str, path: str, status: int, seconds: float, code: str | None = None) -> None:
        """Count a request that was answered."""
        key = method, path, status
        self._requests[key] = self._requests.get(key, 0) + 1
        counts, total = self._seconds.setdefault((method, path), ([0] * (len(BUCKETS) + 1), [0.0]))
        counts[bisect_left(BUCKETS, seconds)] += 1
        total[0] += seconds
        if code is not None:
            self._refused[code] = self._refused.get(code, 0) + 1

    def collect(self) -> Iterator[Metric]:
        """Return the numbers in the words of Prometheus."""
        requests = CounterMetricFamily(
            "chary_http_requests", "Requests answered.", labels=["method", "path", "status"]
        )
        for (method, path, status), count in sorted(self._requests.items()):
            requests.add_metric([method, path, str(status)], count)
        yield requests
        refused = CounterMetricFamily("chary_http_refused", "Requests refused, by reason.", labels=["error"])
        for code, count in sorted(self._refused.items()):
            refused.add_metric([code], count)
        yield refused
        seconds = HistogramMetricFamily(
            "chary_http_request_seconds",
            "Seconds from the head of a request to its durable reply.",
            labels=["method", "path"],
        )
        for (method, path), (counts, total) in sorted(self._seconds.items()):
            below, buckets = 0, []
            for end, count in zip([*map(str, BUCKETS), "+Inf"], counts, strict=True):
                below += count
                buckets.append((end, below))
            seconds.add_metric([method, path], buckets, total[0])
        yield seconds
        yield GaugeMetricFamily("chary_http_in_flight", "Requests being answered.", self.in_flight)
        yield GaugeMetricFamily("chary_start_time_seconds", "When the server started.", self.started)


@final
class EngineMeters:
    """What the engine counts."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        """Return the numbers in the words of Prometheus."""
        engine = self._engine
        for name, value in sorted(engine.counters.items()):
            if name not in _APART:
                family = GaugeMetricFamily if name in _GAUGES else CounterMetricFamily
                yield family(f"chary_{name}", f"The engine's number of {name.replace('_', ' ')}.", value)
        yield GaugeMetricFamily("chary_open_episodes", "Episodes that have not ended.", engine.open_episodes)
        yield GaugeMetricFamily("chary_head_seq", "Number of the last event.", engine.head)
        yield GaugeMetricFamily(
            "chary_durable_seq", "Number of the last event on the disk.", engine.durable_seq
        )
        mode = GaugeMetricFamily("chary_mode", "1 for the mode in force.", labels=["mode"])
        for name in MODES:
            mode.add_metric([name], float(engine.mode == name))
        yield mode


def registry(meters: Meters, engine: Engine) -> CollectorRegistry:
    """Return a registry of its own, so that two servers in one process do not mix their numbers."""
    made = CollectorRegistry(auto_describe=False)
    made.register(meters)
    made.register(EngineMeters(engine))
    return made


def page(numbers: CollectorRegistry) -> bytes:
    """Return the numbers as Prometheus reads them."""
    return generate_latest(numbers)
