"""Names and paths → models. A model's module is imported only when it is asked for."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

from omni_speak.models.base import SpeechModel
from omni_speak.runtime.errors import ModelNotFound

# model_type in config.json → the class that opens such a directory.
MODEL_TYPES: dict[str, str] = {"wren": "omni_speak.models.wren.model:Wren"}

# Names that need no path: models whose weights come with the package.
BUNDLED: dict[str, Path] = {"wren": Path(__file__).parent / "wren" / "weights"}


def open_model(name_or_path: str) -> SpeechModel:
    """Open a bundled model by name or any model by its directory.

    Raises `ModelNotFound` naming the missing file or the unknown type.
    """
    path = BUNDLED.get(name_or_path, Path(name_or_path))
    config = path / "config.json"
    if not config.is_file():
        raise ModelNotFound(
            f"no model at {name_or_path!r}: {config} does not exist; "
            f"give a model directory or one of: {', '.join(BUNDLED)}",
            param="model",
        )
    try:
        model_type = json.loads(config.read_text()).get("model_type")
    except (ValueError, AttributeError) as error:
        raise ModelNotFound(f"{config} is not a JSON object: {error}", param="model") from error
    target = MODEL_TYPES.get(model_type)
    if target is None:
        raise ModelNotFound(
            f"{config} has model_type {model_type!r}; known: {', '.join(MODEL_TYPES)}",
            param="model",
        )
    module, _, attribute = target.partition(":")
    model: SpeechModel = getattr(import_module(module), attribute)(path)
    return model
