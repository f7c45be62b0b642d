import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from omni_speak.models.wren.config import WrenConfig
from scripts.train_wren import export
from scripts.train_wren.clips import Codes
from scripts.train_wren.data import FRAME, Record
from scripts.train_wren.settings import Settings
from scripts.train_wren.wave_stage import Trainer, load_vocoder

from .test_talker_stage import WEIGHTS, same

FRAMES = 12


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """One second of a falling buzz for a corpus."""
    folder = tmp_path / "data"
    folder.mkdir()
    seconds = np.arange(FRAMES * FRAME) / 24_000
    turns = 140 * seconds - 15 * seconds**2
    buzz = sum(np.cos(2 * np.pi * k * turns) / k for k in range(1, 20))
    (folder / "train.s16").write_bytes((3000 * buzz).astype(np.int16).tobytes())
    record = Record(0, "Ah.", ["^", "$"], [0.0, 0.5], 1.0, 0, FRAMES * FRAME)
    (folder / "train.jsonl").write_text(json.dumps(dataclasses.asdict(record)) + "\n")
    Codes(folder, "train", 8).extend(export.load(WEIGHTS)[3])
    return tmp_path


def test_a_vocoder_goes_on_from_exported_weights_and_then_from_its_checkpoint(work: Path) -> None:
    own = dataclasses.replace(
        Settings().better_wave, batch=2, segment_frames=6, discriminator_frames=3, minutes=1e-9
    )

    def begin() -> Trainer:
        return Trainer(work, WrenConfig(), own, 3.0, WEIGHTS)

    trainer = begin()
    assert same(trainer.codec, export.load(WEIGHTS)[3])
    trainer._reload()
    report = trainer._update()
    assert report.keys() == {"loss", "mel", "pitch", "judges", "distance"}
    assert all(np.isfinite(value) for value in report.values())
    assert report["pitch"] < 0.5
    after = export.load(WEIGHTS)[3]
    assert not same(trainer.vocoder, after.vocoder)
    assert same(trainer.codec.rvq, after.rvq) and same(trainer.codec.encoder, after.encoder)

    parts = {name: part.state_dict() for name, part in trainer._parts().items()}
    trainer.checkpoint.save(**parts, step=1, spent=0.0)
    again = begin()
    assert again.step == 1
    assert same(again.vocoder, trainer.vocoder) and same(again.judges, trainer.judges)
    with torch.no_grad():
        assert same(load_vocoder(work, after).vocoder, trainer.average.module)
