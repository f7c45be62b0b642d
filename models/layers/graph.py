"""A function of tensors as one TorchScript graph: between its kernels there is no Python.

The engine, the vocoder and the event loop share Python's lock. A function of hundreds of small
kernels asks for it again after each of them; its graph runs them all without. Same kernels in the
same order, so the same bits.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class Graph:
    """`function` of `module`, recorded on `examples`, for CPUs.

    What it asks Python about a size is fixed by the examples; sizes it passes on are the call's
    own. So a batch may be of any size if the examples have two rows at least and the function reads
    it as `x.shape[0]` (`len(x)` is a number). Tensors that are no parameter or buffer of the module
    are constants. None may require gradients.
    """

    def __init__(self, module: nn.Module, function: Callable[..., Any], *examples: Tensor) -> None:
        with warnings.catch_warnings():
            # torch.compile, which it recommends instead, needs a C++ compiler at every start.
            warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
            # What is asked about a size and so becomes fixed: see above.
            warnings.simplefilter("ignore", torch.jit.TracerWarning)  # type: ignore[attr-defined]
            forward = _Forward(module, function)
            self._recorded = torch.jit.trace(forward, examples, check_trace=False)

    def __call__(self, *tensors: Tensor) -> Any:
        # Optimised, it would be compiled anew by shapes, in the middle of a stream.
        with torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
            return self._recorded(*tensors)


class _Forward(nn.Module):
    """Of a module, torch records only `forward`."""

    def __init__(self, module: nn.Module, function: Callable[..., Any]) -> None:
        super().__init__()
        self.module, self.function = module, function

    def forward(self, *tensors: Tensor) -> Any:
        return self.function(*tensors)
