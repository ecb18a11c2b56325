"""Who is lost, who is stuck: decided from times alone."""

import os

from relaxjax.hosts import Member
from relaxjax.hosts._diagnosis import (
    Heard,
    Patience,
    Sentinel,
    Signs,
    _drop_in_a_fork,
    diagnose,
)

MEMBERS = tuple(Member(i, f"host{i}", f"10.0.0.{i + 1}", 100 + i) for i in range(3))
PATIENCE = Patience(lost_after=10, stuck_after=60)


def judge(now: float, **heard: Heard) -> str | None:
    return diagnose(now, {int(k[1:]): h for k, h in heard.items()}, MEMBERS, PATIENCE)


def test_nothing_is_wrong_while_signs_and_steps_come():
    assert judge(100, p0=Heard(90, 5, 40), p1=Heard(95, 5, 41)) is None
    assert judge(100) is None
    assert judge(100, p0=Heard(100, 7, 99), p1=Heard(100, 7, 1)) is None


def test_silence_is_a_loss():
    diagnosis = judge(
        100, p0=Heard(99, 5, 99), p1=Heard(89.9, 4, 99), p2=Heard(99, 5, 99)
    )
    assert diagnosis == (
        "process 1 (host1, 10.0.0.2, pid 101) is lost: nothing was heard from it for "
        "10 s; the last step heard of was 4"
    )
    both = judge(100, p1=Heard(1, 4, 1), p2=Heard(1, -1, 1)) or ""
    assert "process 1 (host1" in both
    assert "process 2 (host2" in both
    assert "no step had begun" in both


def test_those_behind_are_stuck():
    on = {"p0": Heard(100, 6, 39), "p2": Heard(100, 6, 30)}
    assert judge(99, p1=Heard(99, 5, 30), **on) is None
    diagnosis = judge(100, p1=Heard(100, 5, 30), **on)
    assert diagnosis == (
        "process 1 (host1, 10.0.0.2, pid 101) is stuck: it lives, but has begun no "
        "step for 60 s; the last step heard of was 5"
    )
    level = judge(100, p1=Heard(100, 6, 30), **on) or ""
    assert level.startswith("all processes are stuck: they live, but none has begun")
    assert "left" not in level


def test_who_has_left_its_loop_is_named_beside_who_waits_for_it():
    alone = judge(100, p1=Heard(100, 6, 30)) or ""
    assert alone.startswith("process 1 (host1")
    assert alone.endswith(
        "step heard of was 6; process 0 (host0, 10.0.0.1, pid 100), process 2 (host2, "
        "10.0.0.3, pid 102) left the loop: give every process the same number of "
        "steps"
    )
    two = judge(100, p0=Heard(100, 6, 39), p1=Heard(100, 6, 30)) or ""
    assert two.endswith(
        "; process 2 (host2, 10.0.0.3, pid 102) left the loop: give every process the "
        "same number of steps"
    )


def test_signs_are_told_apart_by_their_count():
    signs, other = Signs(3), Signs(3)
    assert signs.update({}, 5.0) == {i: Heard(5, -1, 5) for i in range(3)}
    first = other.next_sign(-1, "on")
    assert signs.update({"sign/1": first}, 6.0)[1] == Heard(6, -1, 5)
    assert signs.update({"sign/1": first}, 7.0)[1] == Heard(6, -1, 5)
    second = other.next_sign(0, "on")
    assert signs.update({"sign/1": second}, 8.0)[1] == Heard(8, 0, 8)
    third = other.next_sign(0, "on")
    assert signs.update({"sign/1": third}, 9.0)[1] == Heard(9, 0, 8)
    # One that has never been heard cannot be lost, only be behind.
    assert signs.update({"sign/1": third}, 90.0)[2] == Heard(90, -1, 5)
    assert set(signs.update({"sign/1": other.next_sign(4, "done")}, 91.0)) == {0, 2}


def test_a_sentinel_leaves_though_a_fork_holds_its_pipe(capfd):
    """As the workers of a loader do that are forked in the loop."""
    me = Member(0, "host", "127.0.0.1", 1)
    for says_goodbye in (True, False):
        sentinel = Sentinel("127.0.0.1:1", me, me)
        pipe = sentinel._child.stdin
        assert pipe is not None
        held = os.dup(pipe.fileno())
        if says_goodbye:
            sentinel.dismiss()
            sentinel.dismiss()
        else:
            _drop_in_a_fork()  # this process is the fork, and the other one ends
        os.close(held)
        assert sentinel._child.wait(10) == 0
        said = capfd.readouterr().err
        assert ("was killed" in said) == (not says_goodbye)
