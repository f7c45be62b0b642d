"""RMSNorm for CPU steps: vLLM's own C kernel, which it enables for GPUs only.

A talker's step is many small operations; the native form of this one is six of them, 25 times a
step. Registered through vLLM's IR-op seam and chosen by `CPU_OP_PRIORITY`.
"""

from __future__ import annotations

import torch
from vllm import ir
from vllm.platforms import current_platform

current_platform.import_kernels()

PROVIDER = "omni_speak_cpu"
CPU_OP_PRIORITY = {op: [PROVIDER, "native"] for op in ("rms_norm", "fused_add_rms_norm")}


def _plain(weight: torch.Tensor | None, x: torch.Tensor, variance_size: int | None) -> bool:
    return weight is not None and weight.dtype == x.dtype and variance_size is None


def _kernel(x: torch.Tensor, weight: torch.Tensor | None, epsilon: float) -> torch.Tensor:
    x = x.contiguous()  # it reads rows one after another
    output = torch.empty_like(x)
    torch.ops._C.rms_norm(output, x, weight, epsilon)
    return output


@ir.ops.rms_norm.register_impl(
    PROVIDER,
    supports_args=lambda x, weight, epsilon, variance_size=None: _plain(weight, x, variance_size),
)
def rms_norm(
    x: torch.Tensor, weight: torch.Tensor | None, epsilon: float, variance_size: int | None = None
) -> torch.Tensor:
    return _kernel(x, weight, epsilon)


@ir.ops.fused_add_rms_norm.register_impl(
    PROVIDER,
    supports_args=lambda x, x_residual, weight, epsilon, variance_size=None: _plain(
        weight, x, variance_size
    ),
)
def fused_add_rms_norm(
    x: torch.Tensor,
    x_residual: torch.Tensor,
    weight: torch.Tensor | None,
    epsilon: float,
    variance_size: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    residual = x + x_residual
    return _kernel(residual, weight, epsilon), residual
