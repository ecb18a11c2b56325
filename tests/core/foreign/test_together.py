"""Processes meet, with nothing of theirs under way."""

from types import SimpleNamespace
from typing import Any

import jax
from jax._src import distributed

from relaxjax._core.foreign._together import meet


class Step:
    """An array that a step is still computing."""

    def __init__(self, seen: list[str]):
        self._seen = seen

    def block_until_ready(self) -> "Step":
        self._seen.append("ready")
        return self


def test_what_is_under_way_ends_before_processes_meet(monkeypatch):
    """Else the step's sums are taken for those of what they met for."""
    seen: list[str] = []
    client = SimpleNamespace(wait_at_barrier=lambda *_: seen.append("met"))
    monkeypatch.setattr(distributed.global_state, "client", client)
    under_way: Any = [Step(seen), Step(seen)]
    meet("consensus", [0, 1], "", under_way)
    assert seen == ["ready", "ready", "met"]
    meet("consensus", [0], "", under_way)
    assert seen == ["ready", "ready", "met"]
    assert jax.process_count() == 1
