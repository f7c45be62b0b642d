"""The workers build our runners: CPU for real, CUDA as far as a CPU can go."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from omni_speak.runtime import worker
from omni_speak.runtime.runner import CPUSpeechRunner, GPUSpeechRunner, SpeechRunnerMixin
from omni_speak.runtime.worker import GPUSpeechWorker


def test_the_mixin_stands_before_vllms_runners() -> None:
    for runner in (CPUSpeechRunner, GPUSpeechRunner):
        assert runner.__mro__.index(SpeechRunnerMixin) < runner.__mro__.index(GPUModelRunner)


def test_the_cuda_worker_makes_the_cuda_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[Any, ...]] = []
    monkeypatch.setattr(GPUModelRunner, "__init__", lambda self, *args: made.append(args))
    cuda_worker = GPUSpeechWorker.__new__(GPUSpeechWorker)
    cuda_worker.vllm_config, cuda_worker.device = "config", torch.device("cuda")
    assert type(cuda_worker._make_model_runner()) is GPUSpeechRunner
    assert made == [("config", torch.device("cuda"))]


def test_the_cuda_runner_copies_on_a_side_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = GPUSpeechRunner.__new__(GPUSpeechRunner)
    runner.device = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: ("side", device))
    assert runner._copy_stream() == ("side", torch.device("cuda"))
    assert runner._copy_stream() is runner.copy_stream  # one for the runner's life


def test_the_cpu_worker_leaves_torchs_threads_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def stock(self: Any) -> None:
        torch.set_num_threads = lambda n: None  # what vLLM's CPU worker does

    monkeypatch.setattr(worker.CPUWorker, "init_device", stock)
    monkeypatch.setattr(worker, "CPUSpeechRunner", lambda config, device: (config, device))
    original = torch.set_num_threads
    cpu_worker = worker.CPUSpeechWorker.__new__(worker.CPUSpeechWorker)
    cpu_worker.vllm_config = "config"
    cpu_worker.init_device()
    assert torch.set_num_threads is original
    assert cpu_worker.model_runner == ("config", torch.device("cpu"))
