"""Stage `export`: checkpoints → `config.json`, `talker.safetensors`, `codec.safetensors`.

bfloat16 on disk, float32 in memory. The trunk's tensors carry Qwen3's names (`model.layers.0.…`);
all others keep the names they have in `WrenNets` and `Codec`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from omni_speak.models.wren.codec import Codec
from omni_speak.models.wren.config import WrenConfig
from omni_speak.models.wren.nets import WrenNets

from .trunk import TalkerTrunk

log = logging.getLogger(__name__)
TRUNK = "model."


def export(
    folder: Path, config: WrenConfig, nets: WrenNets, trunk: TalkerTrunk, codec: Codec
) -> None:
    """Each file is replaced at once, so that a reader never sees half of one."""
    folder.mkdir(parents=True, exist_ok=True)
    talker = dict(nets.state_dict()) | {TRUNK + k: v for k, v in trunk.state_dict().items()}
    _save(talker, folder / "talker.safetensors")
    _save(codec.state_dict(), folder / "codec.safetensors")
    config.save(folder / "config.json.part")
    os.replace(folder / "config.json.part", folder / "config.json")
    total = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    log.info("exported %.1f MB to %s", total / 1e6, folder)


def load(folder: Path) -> tuple[WrenConfig, WrenNets, TalkerTrunk, Codec]:
    """What `export` wrote, as float32 modules ready to speak."""
    config = WrenConfig.load(folder / "config.json")
    nets, trunk, codec = WrenNets(config), TalkerTrunk(config.talker), Codec(config)
    talker = {
        name: value.float() for name, value in load_file(folder / "talker.safetensors").items()
    }
    trunk.load_state_dict({k[len(TRUNK) :]: v for k, v in talker.items() if k.startswith(TRUNK)})
    nets.load_state_dict({k: v for k, v in talker.items() if not k.startswith(TRUNK)})
    wave = load_file(folder / "codec.safetensors")
    codec.load_state_dict({name: value.float() for name, value in wave.items()})
    return config, nets.eval(), trunk.eval(), codec.eval()


def _save(tensors: Mapping[str, Tensor], path: Path) -> None:
    half = {name: value.to(torch.bfloat16).contiguous() for name, value in tensors.items()}
    partial = path.with_suffix(".part")
    save_file(half, partial)
    partial.chmod(0o644)
    os.replace(partial, path)
