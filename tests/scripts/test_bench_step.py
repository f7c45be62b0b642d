"""The step benchmark really steps: a short run of every variant."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "bench_step.py"


def test_every_variant_runs_and_is_taken_apart(tmp_path: Path) -> None:
    output = tmp_path / "step.json"
    options = ["--batch", "2", "--steps", "3", "--rounds", "1", "--output", str(output)]
    subprocess.run([sys.executable, str(SCRIPT), *options], check=True, timeout=300)
    rows = {row["variant"]: row for row in json.loads(output.read_text())}
    assert set(rows) == {"inline", "background", "unseeded", "bare"}
    for variant, row in rows.items():
        for part in ("step", "schedule", "prepare", "forward", "sample"):
            assert row[part] > 0, (variant, part)
        assert (row["mtp"] > 0) == (row["build"] > 0) == (variant != "bare")
