"""Linear layers as a CPU multiplies them fastest: packed for oneDNN, in bfloat16 where the CPU has
instructions for it.

oneDNN sums up an output in the same order however many rows there are. So what a stream hears does
not depend, to the bit, on who else is in its batch.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn


def packed_dtype() -> torch.dtype:
    """What this CPU multiplies fastest among what sounds the same."""
    has_bfloat16 = torch.cpu.get_capabilities().get("avx512_bf16", False)
    return torch.bfloat16 if has_bfloat16 else torch.float32


def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    product = torch.ops.mkldnn._linear_pointwise(x.to(weight.dtype), weight, bias, "none", [], "")
    return product.float()  # type: ignore[no-any-return]


with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
    # A graph cannot record the call's empty list, but it can take in a script.
    _linear_script = torch.jit.script(_linear)


class PackedLinear(nn.Module):
    """A trained `nn.Linear`: x [..., in] float32 → [..., out] float32, inference only.

    In bfloat16 both factors and the result are rounded; sums and the bias are float32.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, linear: nn.Linear, dtype: torch.dtype) -> None:
        super().__init__()
        weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach().to(dtype), None)
        self.register_buffer("weight", weight, persistent=False)
        self.register_buffer("bias", linear.bias.detach(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = _linear_script(x, self.weight, self.bias)
        return out


def pack(module: nn.Module, *, exact: Sequence[nn.Module] = ()) -> None:
    """Replace every `nn.Linear` inside `module`, after loading. Those in `exact` stay float32."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            dtype = torch.float32 if child in exact else packed_dtype()
            setattr(module, name, PackedLinear(child, dtype))
        else:
            pack(child, exact=exact)
