from pathlib import Path

import torch

from omni_speak.models.wren.config import WrenConfig
from scripts.train_wren import export
from scripts.train_wren.settings import Settings
from scripts.train_wren.talker_stage import Trainer, load_talker

WEIGHTS = Path(__file__).parents[3] / "models" / "wren" / "weights"


def test_training_goes_on_from_exported_weights_and_then_from_its_checkpoint(
    tmp_path: Path,
) -> None:
    settings = Settings()

    def begin() -> Trainer:
        own = settings.going_on
        return Trainer(tmp_path, WrenConfig(), own, settings.checkpoint_minutes, WEIGHTS)

    _, nets, trunk, codec = export.load(WEIGHTS)
    trainer = begin()
    assert same(trainer.talker.nets, nets)
    assert same(trainer.talker.trunk, trunk)
    assert same(trainer.codec, codec)
    assert trainer.settings.joined_from == 0

    with torch.no_grad():
        trainer.talker.nets.head.weight += 1
    trainer.average.update_parameters(trainer.talker)
    trainer.step = 7
    trainer._save()
    again = begin()
    assert same(again.talker, trainer.talker)
    assert again.step == 7
    assert same(load_talker(tmp_path, WrenConfig()).nets, trainer.talker.nets)


def same(left: torch.nn.Module, right: torch.nn.Module) -> bool:
    ours, theirs = left.state_dict(), right.state_dict()
    return ours.keys() == theirs.keys() and all(
        torch.equal(ours[name], theirs[name]) for name in ours
    )
