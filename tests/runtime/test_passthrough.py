"""vLLM's own features, through our runner: what we add must not be in their way."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from vllm.config import KVTransferConfig
from vllm.v1.worker.cpu_model_runner import CPUModelRunner

from tests.runtime.conftest import SteppedCore

Stepped = Callable[..., SteppedCore]
PROMPT = "y" * 140  # more than one 128-token block


def test_R34_vllms_kv_connectors_stay_usable(stepped: Stepped, tmp_path: Path) -> None:
    """One engine stores its prompts' KV on disk, another loads it and speaks the same."""
    storage = tmp_path / "kv"

    def run() -> tuple[list[list[int]], int]:
        core = stepped(
            tiny={"never_ends": True},
            max_step_tokens=256,
            kv_transfer_config=KVTransferConfig(
                kv_connector="ExampleConnector",
                kv_role="kv_both",
                kv_connector_extra_config={"shared_storage_path": str(storage)},
            ),
        )
        computed: list[int] = []
        embed = core.runner.talker.embed_frames
        core.runner.talker.embed_frames = lambda i, *a: computed.append(len(i)) or embed(i, *a)
        req_id = core.add(PROMPT, temperature=0.0, max_frames=5)
        core.run()
        codes = core.codes(req_id)
        core.core.shutdown()
        return codes, computed[0]

    (stored, everything), (loaded, rest) = run(), run()
    assert list(storage.rglob("*.safetensors"))
    assert (everything, rest) == (140, 12)
    assert stored == loaded and len(stored) == 5


SPECULATE = """
import json, sys
from pathlib import Path
from tests.models.tiny import make_tiny
from tests.runtime.conftest import SteppedCore
tiny = json.loads(sys.argv[2])
speculation = json.loads(sys.argv[3])
core = SteppedCore(
    make_tiny(Path(sys.argv[1]), never_ends=True, **tiny), speculative_config=speculation
)
req_id = core.add("abababababab", temperature=0.0, max_frames=24)
tokens, steps = [], 0
try:
    while core.core.scheduler.has_requests():
        outputs, executed = core.core.step_fn()
        core.core.post_step(executed)
        steps += 1
        for batch in (outputs or {}).values():
            tokens += [t for o in batch.outputs for t in o.new_token_ids]
except ValueError as error:
    print("RESULT", json.dumps(str(error).replace(req_id, "<request>")), flush=True)
else:
    print("RESULT", json.dumps([tokens, steps]), flush=True)
"""
"""In a process of its own: n-gram speculation imports numba, beside which vLLM starts no second
engine in one process."""

NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 2}


def speculate(directory: Path, tiny: dict[str, Any], config: dict[str, Any] | None) -> Any:
    arguments = [str(directory), json.dumps(tiny), json.dumps(config)]
    done = subprocess.run(
        [sys.executable, "-c", SPECULATE, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
    )
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    return json.loads(line.removeprefix("RESULT "))


def test_R34_speculation_works_for_a_stage_without_frames(tmp_path: Path) -> None:
    stage = {"talker": "Stage"}
    plain, plain_steps = speculate(tmp_path / "a", stage, None)
    speculated, fewer_steps = speculate(tmp_path / "b", stage, NGRAM)
    assert len(plain) == 24 and speculated == plain
    assert fewer_steps < plain_steps  # some guesses were right


def test_R34_frames_cannot_be_made_of_several_tokens_at_once(tmp_path: Path) -> None:
    error = speculate(tmp_path, {}, NGRAM)
    assert "needs exactly one sampled token per row" in error and "<request>" in error


RANK = """
import json, sys
from pathlib import Path
from tests.models.tiny import make_tiny
from tests.models.tiny import make_tiny
from tests.runtime.conftest import SteppedCore
core = SteppedCore(
    make_tiny(Path(sys.argv[1]) / sys.argv[2]),
    tensor_parallel_size=2,
    distributed_executor_backend="external_launcher",
)
ids = [core.add(f"hello {i}", seed=i) for i in range(3)]
core.run()
print("CODES", json.dumps([core.codes(r) for r in ids]), flush=True)
"""


def test_R34_tensor_parallel_ranks_speak_as_one_process_does(
    stepped: Stepped, tmp_path: Path
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(tmp_path), str(rank)],
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
            },
        )
        for rank in range(2)
    ]
    spoken = []
    for process in ranks:
        out, _ = process.communicate(timeout=300)
        (line,) = [line for line in out.splitlines() if line.startswith("CODES ")]
        spoken.append(json.loads(line.removeprefix("CODES ")))
    core = stepped()
    ids = [core.add(f"hello {i}", seed=i) for i in range(3)]
    core.run()
    assert spoken[0] == spoken[1] == [core.codes(r) for r in ids]


def test_R34_a_talker_with_frames_refuses_pipeline_stages(
    stepped: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = stepped()
    monkeypatch.setattr(CPUModelRunner, "load_model", lambda self: None)
    core.runner.parallel_config.pipeline_parallel_size = 2
    with pytest.raises(ValueError, match=r"cannot run pipeline-parallel.*use tensor parallelism"):
        core.runner.load_model()
