"""Attention metadata that a model asks to be padded, on vLLM's own builder and backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.runtime.conftest import SteppedCore

Stepped = Callable[..., SteppedCore]


def spy_on_common_metadata(core: SteppedCore) -> list[Any]:
    """What each step's attention metadata is built from."""
    seen: list[Any] = []
    for groups in core.runner.attn_groups:
        for group in groups:
            builder = group.get_metadata_builder(0)
            build = builder.build

            def spy(prefix: int, common: Any, *args: Any, build: Any = build, **kwargs: Any) -> Any:
                seen.append(common)
                return build(prefix, common, *args, **kwargs)

            builder.build = spy
    return seen


@pytest.mark.parametrize(("rows", "given"), [(5, 5), (100, 8), (0, 2)])
def test_R32_padding_is_bounded_and_neutral(stepped: Stepped, rows: int, given: int) -> None:
    core = stepped(tiny={"talker": "Assisted", "never_ends": True, "rows": rows})
    crowd = [core.add("crowd " * 4, max_frames=2) for _ in range(8)]  # leaves its lengths behind
    core.run()
    seen = spy_on_common_metadata(core)
    for text in ("hello", "hello again"):
        core.add(text, max_frames=3)
    core.step()
    common = seen[-1]
    assert common.num_reqs == given and len(crowd) == 8
    assert common.query_start_loc.tolist()[:3] == [0, 5, 16]
    assert common.query_start_loc.tolist()[2:] == [16] * (given - 1)  # empty queries
    assert common.seq_lens.tolist() == [5, 11] + [0] * (given - 2)
    assert (common.block_table_tensor[2:given] == 0).all()  # the null block


def test_R32_padding_changes_no_code(stepped: Stepped) -> None:
    def codes(**tiny: Any) -> list[list[list[int]]]:
        core = stepped(tiny=tiny)
        ids = [core.add(f"hello {i}", seed=i) for i in range(3)]
        core.run()
        return [core.codes(r) for r in ids]

    assert codes(talker="Assisted", rows=8) == codes()


def test_R32_the_models_context_is_on_for_the_forward_only(stepped: Stepped) -> None:
    core = stepped(tiny={"talker": "Assisted", "rows": 4})
    core.add("hello", max_frames=2)
    core.step()
    talker = core.runner.talker
    assert talker.forwards[-1:] == [True] and talker.context is None
    assert talker.contexts[-2] is not None and talker.contexts[-1] is None


def test_R32_the_models_context_is_off_after_a_failure(stepped: Stepped) -> None:
    core = stepped(tiny={"talker": "Assisted", "rows": 4})
    core.add("hello", max_frames=2)
    core.runner.talker.options["breaks_forward"] = True
    with pytest.raises(RuntimeError, match="broken forward"):
        core.step()
    assert core.runner.talker.forwards[-1] and core.runner.talker.context is None
