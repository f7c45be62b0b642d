"""The MTP as CUDA graphs, per batch bucket. Graphs are recorded and replayed here as CUDA would:
the same tensors, computed again in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch

from omni_speak.models.base import SampledRows
from omni_speak.runtime.talker_mtp import GraphCaptureFailed, MTPGraphs
from tests.runtime.conftest import SteppedCore

Stepped = Callable[..., SteppedCore]
CODEBOOKS, HIDDEN, SPARE = 3, 4, 9


class Talker:
    """codes = token + slot + position + seed + temperature + sum of hidden, per codebook; keeps
    every slot's last token, and may do what no graph can."""

    codebooks = CODEBOOKS

    def __init__(self) -> None:
        self.last = torch.full((SPARE + 1,), -1)
        self.breaks = False
        self.eager = 0

    def post_sample_talker_mtp(
        self, tokens: torch.Tensor, hidden: torch.Tensor, rows: SampledRows
    ) -> torch.Tensor:
        self.eager += bool(rows.req_ids)
        if self.breaks:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.last[rows.slots] = tokens
        base = tokens + 10 * rows.slots + 100 * rows.positions + 1000 * rows.seeds
        base = base + (hidden.sum(-1) + rows.sampling[:, 0]).to(torch.int64)
        return base[:, None] + torch.arange(CODEBOOKS)


class Graph:
    """What was run while it captured; `replay` runs it again and writes where it wrote."""

    current: Graph | None = None

    def __init__(self) -> None:
        self.work: Callable[[], torch.Tensor] | None = None
        self.replays = 0

    def pool(self) -> str:
        return "pool"

    def replay(self) -> None:
        assert self.work is not None
        self.replays += 1
        self.out.copy_(self.work())


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """CUDA's graph calls; the MTP's runs are what graphs record."""
    entries: list[Any] = []

    @contextmanager
    def capturing(graph: Graph, pool: Any) -> Iterator[None]:
        entries.append(("capture", pool))
        Graph.current = graph
        yield
        Graph.current = None

    run = MTPGraphs._run

    def recorded(self: MTPGraphs, rows: int) -> torch.Tensor:
        out = run(self, rows)
        if Graph.current is not None:
            Graph.current.work, Graph.current.out = (lambda: run(self, rows)), out
            entries.append(("rows", rows))
        return out

    monkeypatch.setattr(MTPGraphs, "_run", recorded)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", capturing)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: entries.append("synchronize"))
    return entries


def batch(rows: int) -> tuple[torch.Tensor, torch.Tensor, SampledRows]:
    index = torch.arange(rows)
    return (
        index + 5,
        torch.rand(rows, HIDDEN) + index[:, None],
        SampledRows(
            req_ids=[str(i) for i in range(rows)],
            infos=[{}] * rows,
            slots=index,
            positions=index + 2,
            seeds=index + 3,
            sampling=torch.rand(rows, 3),
        ),
    )


def captured(talker: Talker) -> MTPGraphs:
    graphs = MTPGraphs(talker, [4, 1, 2], HIDDEN, SPARE)
    graphs.capture(torch.device("cpu"), torch.float32)
    return graphs


def test_R19_one_graph_per_bucket_largest_first(log: list[Any]) -> None:
    graphs = captured(Talker())
    assert len(graphs) == 3
    assert [e for e in log if e != "synchronize"] == [
        ("capture", None),
        ("rows", 4),
        ("capture", "pool"),
        ("rows", 2),
        ("capture", "pool"),
        ("rows", 1),
    ]


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_R19_a_batch_runs_in_the_smallest_bucket_that_holds_it(log: list[Any], rows: int) -> None:
    talker = Talker()
    graphs = captured(talker)
    tokens, hidden, sampled = batch(rows)
    codes = graphs(tokens, hidden, sampled)
    assert talker.eager == 0  # replayed, not called
    bucket = {1: 1, 2: 2, 3: 4, 4: 4}[rows]
    assert [size for size, g in graphs._graphs.items() if g.replays] == [bucket]
    torch.testing.assert_close(codes, Talker().post_sample_talker_mtp(tokens, hidden, sampled))
    # Padding rows touched no request's slot.
    assert talker.last[:SPARE].tolist() == [*tokens.tolist(), *[-1] * (SPARE - rows)]


def test_R19_padding_forgets_who_was_there_before(log: list[Any]) -> None:
    talker = Talker()
    graphs = captured(talker)
    graphs(*batch(4))
    talker.last[3] = -7  # somebody else's by now
    graphs(*batch(3))
    assert talker.last[3] == -7


def test_R19_a_result_outlives_the_next_replay(log: list[Any]) -> None:
    graphs = captured(Talker())
    first = graphs(*batch(2))
    kept = first.clone()
    graphs(*batch(2))
    assert torch.equal(first, kept)


def test_R19_a_batch_over_every_bucket_runs_eagerly(log: list[Any]) -> None:
    talker = Talker()
    assert captured(talker)(*batch(5)).shape == (5, CODEBOOKS)
    assert talker.eager == 1


def test_R19_a_failed_capture_names_the_promise(log: list[Any]) -> None:
    talker = Talker()
    talker.breaks = True
    with pytest.raises(
        GraphCaptureFailed,
        match=r"Talker declares talker_mtp_graph_safe, but .* for 4 rows.*captur",
    ):
        captured(talker)


def test_R19_only_a_model_that_declares_it_is_captured(
    stepped: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    core = stepped()
    captures: list[torch.device] = []
    monkeypatch.setattr(GPUModelRunner, "capture_model", lambda self: 7)
    monkeypatch.setattr(core.runner.mtp, "capture", lambda device, dtype: captures.append(device))
    assert core.runner.capture_model() == 7 and captures == []
    core.runner.hooks = replace(core.runner.hooks, mtp_graph_safe=True)
    assert core.runner.capture_model() == 7 and captures == [core.runner.device]
