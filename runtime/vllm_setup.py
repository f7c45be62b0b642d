"""vLLM, configured for speech: one place for its environment, plug-ins and settings.

Importing this module imports vLLM (about 6 s): only the engine thread does.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

# Read by vLLM at import. Model Runner V1 is what our seams fit; the rest keeps a library quiet.
os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "0")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

import torch
from torch import nn
from transformers import PretrainedConfig
from vllm.config import ModelConfig, VllmConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.base_loader import BaseModelLoader
from vllm.model_executor.models import ModelRegistry
from vllm.sampling_params import SamplingParams
from vllm.transformers_utils.config import register_config_parser
from vllm.transformers_utils.config_parser_base import ConfigParserBase
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.engine.core import EngineCore
from vllm.v1.executor.uniproc_executor import ExecutorWithExternalLauncher, UniProcExecutor
from vllm.v1.request import Request

from omni_speak.models.base import Prompt, SpeechModel
from omni_speak.models.registry import open_model
from omni_speak.runtime.cpu_ops import CPU_OP_PRIORITY
from omni_speak.runtime.prefix_cache import speech_block_hasher
from omni_speak.runtime.runner import SPEECH_ARGS, RequestArgs, SpeechRunnerMixin
from omni_speak.runtime.scheduler import AsyncFrameClockScheduler, FrameClockScheduler

FORMAT = "omni_speak"
"""Our name among vLLM's config formats and load formats."""


@register_config_parser(FORMAT)
class SpeechConfigParser(ConfigParserBase):
    """A model directory's shape, as our registry reads it."""

    def parse(
        self, model: str | Path, *args: Any, **kwargs: Any
    ) -> tuple[dict[str, Any], PretrainedConfig]:
        config = open_model(str(model)).hf_config()
        return config.to_dict(), config


@register_model_loader(FORMAT)
class SpeechModelLoader(BaseModelLoader):
    """A talker's weights, as its own model reads them."""

    def download_model(self, model_config: ModelConfig) -> None:
        """Models are local directories."""

    def load_weights(self, model: nn.Module, model_config: ModelConfig) -> None:
        open_model(model_config.model).load_talker(model)


def vllm_config(
    model: SpeechModel,
    *,
    device: str,
    max_streams: int,
    max_step_tokens: int,
    kv_cache_bytes: int,
    async_scheduling: bool,
    num_kv_blocks: int | None = None,
    prefix_caching: bool = True,
    **more: Any,
) -> VllmConfig:
    """vLLM's configuration for `model`: eager, float32 on CPU, chunked prefill and prefix caching
    on, our worker and loader plugged in. `num_kv_blocks` overrides the KV pool (tests); `more` adds
    to or overrides what goes to vLLM's `EngineArgs` (connectors, speculation, parallelism)."""
    (architecture,) = model.hf_config().architectures
    ModelRegistry.register_model(architecture, model.talker_class())
    worker = "CPUSpeechWorker" if device == "cpu" else "GPUSpeechWorker"
    arguments: dict[str, Any] = {
        "model": str(model.path),
        "config_format": FORMAT,
        "load_format": FORMAT,
        "skip_tokenizer_init": True,
        "dtype": "float32" if device == "cpu" else "bfloat16",
        "enforce_eager": device == "cpu",
        # CUDA graphs read embeddings from the runner's persistent buffer.
        "enable_prompt_embeds": device != "cpu",
        "ir_op_priority": CPU_OP_PRIORITY if device == "cpu" else {},
        "worker_cls": f"omni_speak.runtime.worker.{worker}",
        "max_num_seqs": max_streams,
        "max_num_batched_tokens": max_step_tokens,
        "enable_chunked_prefill": True,
        "enable_prefix_caching": prefix_caching,
        "kv_cache_memory_bytes": kv_cache_bytes,
        "num_gpu_blocks_override": num_kv_blocks,
        "async_scheduling": async_scheduling,
        "scheduler_cls": AsyncFrameClockScheduler if async_scheduling else FrameClockScheduler,
        "disable_log_stats": True,
    }
    config = EngineArgs(**arguments | more).create_engine_config()
    # The CPU platform switches it off; it works there (a batch queue of two).
    config.scheduler_config.async_scheduling = async_scheduling
    return config


def make_core(config: VllmConfig) -> tuple[EngineCore, SpeechRunnerMixin]:
    """vLLM's engine core in this process and thread, and our runner inside it. With vLLM's
    `external_launcher` this process is one rank of several (torchrun's environment)."""
    ranked = config.parallel_config.distributed_executor_backend == "external_launcher"
    executor = ExecutorWithExternalLauncher if ranked else UniProcExecutor
    core = EngineCore(config, executor, log_stats=False)
    if core.request_block_hasher is not None:  # None: neither prefix caching nor KV connector
        core.request_block_hasher = speech_block_hasher(
            core.request_block_hasher,
            core.scheduler.kv_cache_config.hash_block_size,
            get_hash_fn_by_name(config.cache_config.prefix_caching_hash_algo),
        )
    runner = core.model_executor.driver_worker.worker.model_runner
    if not isinstance(runner, SpeechRunnerMixin):
        raise TypeError(f"vLLM built a {type(runner).__name__}, not our runner")
    return core, runner


def make_request(
    core: EngineCore,
    runner: SpeechRunnerMixin,
    request_id: str,
    prompt: Prompt,
    *,
    seed: int,
    max_frames: int | None = None,
) -> Request:
    """The request that `core.add_request` takes. `request_id` must be unique for all time (see
    `prefix_cache`); `max_frames` overrides the prompt's frame budget."""
    room = runner.max_model_len - len(prompt.token_ids)
    return Request(
        request_id=request_id,
        prompt_token_ids=prompt.token_ids,
        sampling_params=SamplingParams(
            temperature=prompt.sampling.temperature,
            top_k=prompt.sampling.top_k,
            top_p=prompt.sampling.top_p,
            repetition_penalty=prompt.sampling.repetition_penalty,
            seed=seed,
            max_tokens=min(max_frames or prompt.max_frames, room),
            stop_token_ids=sorted(runner.hooks.end_token_ids),
            detokenize=False,
            extra_args={
                SPEECH_ARGS: RequestArgs(prompt.conditioning, prompt.mtp or prompt.sampling)
            },
        ),
        pooling_params=None,
        cache_salt=prompt.cache_salt,
        block_hasher=core.request_block_hasher,
    )


def pick_device(wanted: str) -> str:
    """`auto` is CUDA where there is one and this is vLLM's CUDA build, else CPU."""
    if wanted != "auto":
        return wanted
    return "cuda" if torch.cuda.is_available() else "cpu"
