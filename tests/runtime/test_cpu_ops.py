"""The CPU RMSNorm kernels are vLLM's native operations, to rounding."""

from __future__ import annotations

import torch
from vllm import ir

from omni_speak.runtime import cpu_ops


def test_kernels_equal_the_native_operations() -> None:
    torch.manual_seed(0)
    heads = torch.randn(7, 512).split([256, 128, 128], -1)[0].view(7, 4, 64)  # strided
    weight, eps = torch.randn(64), 1e-6
    native = ir.ops.rms_norm.impls["native"].impl_fn
    torch.testing.assert_close(
        cpu_ops.rms_norm.impl_fn(heads, weight, eps),
        native(heads, weight, eps),
        atol=1e-5,
        rtol=1e-5,
    )
    x, residual, weight = torch.randn(7, 256), torch.randn(7, 256), torch.randn(256)
    expected = ir.ops.fused_add_rms_norm.impls["native"].impl_fn(x, residual, weight, eps)
    for ours, theirs in zip(
        cpu_ops.fused_add_rms_norm.impl_fn(x, residual, weight, eps), expected, strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
