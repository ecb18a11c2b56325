"""What a row of the table says where it states nothing."""

import optax

from relaxjax._core._relaxation import SYNC_EVERY, Relaxation, Sends, Training


def test_a_row_that_states_only_what_it_must():
    def build(*args, **parts):
        return optax.with_extra_args_support(optax.identity())

    row = Relaxation(name="mine", summary="Nothing.", build=build)
    assert (row.algorithms, row.options, row.parent) == ((), frozenset(), "adamw")
    assert row.period == 1  # every step communicates, and alike
    assert row.compressors is row.ordered is row.apart is False
    assert row.sends.grows is False
    assert row.sends == Sends(
        kind="traced", line="", why="", algorithm="psum", early=False, variants=False
    )
    assert Training(optax.identity(), 0.1, 9, 4).order is None


def test_the_period_that_pages_and_tables_are_written_for():
    assert SYNC_EVERY == 8
