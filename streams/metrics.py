"""What `/metrics` shows: counters of the doors, and the engine's own counters at scrape time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from omni_speak.streams.speaking import Engine, Tally

_FIRST_AUDIO_BUCKETS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0)


class Metrics:
    """One registry per server, so that servers in one process do not share counts. `sessions` tells
    how many there are, those included that wait for their client to come back."""

    def __init__(self, engine: Callable[[], Engine | None], sessions: Callable[[], int]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_EngineCollector(engine))
        ProcessCollector(registry=self._registry)
        self.sessions = Gauge(
            "omni_speak_sessions", "Sessions, with or without a connection", registry=self._registry
        )
        self.sessions.set_function(sessions)
        self.tasks = Gauge("omni_speak_tasks", "Tasks on the event loop", registry=self._registry)
        self.tasks.set_function(lambda: len(asyncio.all_tasks()))
        self.active = Gauge(
            "omni_speak_active", "Requests and sessions now", ["door"], registry=self._registry
        )
        self.frames = Counter(
            "omni_speak_frames_sent", "Audio frames sent", ["door"], registry=self._registry
        )
        self.requests = Counter(
            "omni_speak_requests",
            "HTTP speech requests and duplex sessions by how they ended",
            ["door", "outcome"],
            registry=self._registry,
        )
        self.first_audio = Histogram(
            "omni_speak_first_audio_seconds",
            "From the HTTP request's arrival to its first audio",
            buckets=_FIRST_AUDIO_BUCKETS,
            registry=self._registry,
        )

        self.loop_lag = Histogram(
            "omni_speak_loop_lag_seconds",
            "How late the event loop wakes who asked to be woken",
            buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2),
            registry=self._registry,
        )

    def render(self) -> bytes:
        return generate_latest(self._registry)


class _EngineCollector(Collector):
    def __init__(self, engine: Callable[[], Engine | None]) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        engine = self._engine()
        alive = engine is not None and engine.alive
        yield GaugeMetricFamily("omni_speak_engine_alive", "1 while the engine runs", value=alive)
        if engine is None or not alive:
            return
        stats = engine.stats()
        yield GaugeMetricFamily(
            "omni_speak_engine_running", "Requests being generated", value=stats.running
        )
        yield GaugeMetricFamily(
            "omni_speak_engine_waiting", "Requests waiting for a slot", value=stats.waiting
        )
        yield GaugeMetricFamily(
            "omni_speak_engine_held", "Streams held, ahead of their listeners", value=stats.held
        )
        yield GaugeMetricFamily(
            "omni_speak_engine_capacity",
            "Streams whose frames can all be in time",
            value=stats.capacity,
        )
        yield GaugeMetricFamily(
            "omni_speak_engine_kv_use", "Share of KV blocks in use", value=stats.kv_use
        )
        errors = GaugeMetricFamily(
            "omni_speak_engine_time_model_error",
            "Mean relative error of predicted times",
            labels=["stage"],
        )
        seconds = CounterMetricFamily(
            "omni_speak_engine_stage_seconds", "Time spent, by stage of a step", labels=["stage"]
        )
        for name, stage in stats.stages.items():
            errors.add_metric([name], stage.error)
            seconds.add_metric([name], stage.seconds)
        yield errors
        yield seconds
        leads = GaugeMetricFamily(
            "omni_speak_engine_lead_seconds",
            "Generated minus heard, over the streams that have audio",
            labels=["of"],
        )
        if stats.leads:
            leads.add_metric(["least"], min(stats.leads))
            leads.add_metric(["mean"], sum(stats.leads) / len(stats.leads))
        yield leads
        yield _histogram(
            "omni_speak_engine_first_audio_seconds",
            "From a stream's arrival at the engine to its first frame",
            stats.first_audio,
        )
        yield _histogram(
            "omni_speak_engine_frame_lateness_seconds",
            "When frames came minus when their players ran dry; negative is early",
            stats.lateness,
        )
        yield _histogram(
            "omni_speak_engine_stream_underruns",
            "Underruns of each stream that ended",
            stats.underruns_of_streams,
        )
        yield CounterMetricFamily(
            "omni_speak_engine_underruns",
            "Frames that came after their player needed them",
            value=stats.underruns_total,
        )
        yield CounterMetricFamily(
            "omni_speak_engine_refusals", "Requests refused", value=stats.refused_total
        )
        yield CounterMetricFamily(
            "omni_speak_engine_frames", "Frames generated", value=stats.frames_total
        )
        yield CounterMetricFamily(
            "omni_speak_engine_requests", "Requests accepted", value=stats.requests_total
        )
        yield CounterMetricFamily(
            "omni_speak_engine_tokens", "Tokens stepped, prompts included", value=stats.tokens_total
        )
        yield CounterMetricFamily("omni_speak_engine_steps", "Steps run", value=stats.steps_total)


def _histogram(name: str, documentation: str, tally: Tally) -> HistogramMetricFamily:
    return HistogramMetricFamily(
        name, documentation, buckets=list(tally.buckets()), sum_value=tally.sum
    )
