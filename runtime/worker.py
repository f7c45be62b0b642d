"""The workers: vLLM's, building our runner. Named to vLLM by `worker_cls`."""

from __future__ import annotations

import torch
from vllm.v1.worker.cpu_worker import CPUWorker
from vllm.v1.worker.gpu_model_runner import GPUModelRunner
from vllm.v1.worker.gpu_worker import Worker

from omni_speak.runtime.runner import CPUSpeechRunner, GPUSpeechRunner


class CPUSpeechWorker(CPUWorker):
    """vLLM's CPU worker, with our runner."""

    def init_device(self) -> None:
        """Seam: the stock method builds a stock runner and, for the whole process, turns
        `torch.set_num_threads` into a no-op; the vocoder shares this process and needs it."""
        set_num_threads = torch.set_num_threads
        super().init_device()
        torch.set_num_threads = set_num_threads
        self.model_runner = CPUSpeechRunner(self.vllm_config, torch.device("cpu"))


class GPUSpeechWorker(Worker):
    """vLLM's CUDA worker, with our runner."""

    def _make_model_runner(self) -> GPUModelRunner:
        return GPUSpeechRunner(self.vllm_config, self.device)
