"""What launchers say, and the devices that each process takes from it."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import pytest

from relaxjax import hosts
from relaxjax.hosts import Member, _devices, _join, _launchers
from relaxjax.hosts._description import described
from relaxjax.hosts._devices import assigned, line, told
from relaxjax.hosts._launchers import Layout, seen
from relaxjax.hosts._members import Report
from tests.hosts.test_rendezvous import free_address

FOUR = "0,1,2,3"


def step(number: int, per_node: str, nodes: int, **more: str) -> dict[str, str]:
    """What srun gives the tasks of a step, as its manual lists it."""
    counts: list[int] = []
    for part in per_node.split(","):
        count, _, times = part.partition("(x")
        counts += [int(count)] * int(times.rstrip(")") or 1)
    node = next(i for i in range(nodes) if sum(counts[: i + 1]) > number)
    return {
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_NODELIST": f"node[1-{nodes}]",
        "SLURM_STEP_NUM_TASKS": str(sum(counts)),
        "SLURM_STEP_TASKS_PER_NODE": per_node,
        "SLURM_NTASKS": str(sum(counts)),
        "SLURM_PROCID": str(number),
        "SLURM_NODEID": str(node),
        "SLURM_LOCALID": str(number - sum(counts[:node])),
        **more,
    }


def taken(envs: Sequence[Mapping[str, str]]) -> list[tuple[int, ...] | None]:
    """The devices of each process, as `join` finds them."""
    reports = []
    for i, env in enumerate(envs):
        job = described(None, None, None, wait=1, env=env)
        assert job is not None
        assert (job.processes, job.process_id) == (len(envs), i)
        host = env.get("SLURM_NODEID", "0")
        ids = told(None, env)
        me = Member(i, host, "a", 1, None if ids is None else tuple(ids), seen(env))
        reports.append(Report(me, len(envs), {}, job.layout))
    return [member.devices for member in assigned(reports[::-1])]


def test_one_process_for_each_host():
    envs = [step(i, "1(x3)", 3, CUDA_VISIBLE_DEVICES=FOUR) for i in range(3)]
    assert taken(envs) == [None, None, None]


def test_one_process_for_each_gpu():
    envs = [step(i, "4(x2)", 2, CUDA_VISIBLE_DEVICES=FOUR) for i in range(8)]
    assert taken(envs) == [(0,), (1,), (2,), (3,)] * 2


def test_gpus_are_shared_out_in_runs():
    envs = [step(i, "2(x2)", 2, CUDA_VISIBLE_DEVICES=FOUR) for i in range(4)]
    assert taken(envs) == [(0, 1), (2, 3)] * 2
    envs = [step(i, "3,1", 2, CUDA_VISIBLE_DEVICES=FOUR) for i in range(4)]
    assert taken(envs) == [(0,), (1,), (2,), None]  # the fourth is alone on its host
    envs = [step(i, "2", 1, SLURM_GPUS_ON_NODE="8") for i in range(2)]
    assert taken(envs) == [(0, 1, 2, 3), (4, 5, 6, 7)]
    envs = [step(i, "2", 1) for i in range(2)]  # nobody says how many there are
    assert taken(envs) == [(0,), (1,)]


@pytest.mark.parametrize(
    "more",
    [
        {"SLURM_GPUS_PER_TASK": "1", "CUDA_VISIBLE_DEVICES": "0"},
        {"SLURM_GPUS_PER_TASK": "2", "CUDA_VISIBLE_DEVICES": "0,1"},
        {"SLURM_TRES_PER_TASK": "cpu=4,gres/gpu=2", "CUDA_VISIBLE_DEVICES": "0,1"},
        {"SLURM_GPU_BIND": "map_gpu:0,1", "CUDA_VISIBLE_DEVICES": "0,1"},
        {"SLURM_GPUS_ON_NODE": "4", "ROCR_VISIBLE_DEVICES": "2,3"},
        {"CUDA_VISIBLE_DEVICES": "3"},
    ],
)
def test_a_process_that_is_shown_its_own_gpus_takes_all(more):
    assert taken([step(i, "2", 1, **more) for i in range(2)]) == [None, None]


def test_what_is_shown_to_all_is_shared_out():
    more = {"SLURM_GPUS_PER_TASK": "2", "SLURM_GPU_BIND": "none"}
    more |= {"CUDA_VISIBLE_DEVICES": FOUR, "SLURM_GPUS_ON_NODE": "4"}
    assert taken([step(i, "2", 1, **more) for i in range(2)]) == [(0, 1), (2, 3)]


def test_the_variable_and_the_argument_come_first():
    ids = {"JAX_LOCAL_DEVICE_IDS": "0", "CUDA_VISIBLE_DEVICES": "0"}
    assert taken([step(i, "2", 1, **ids) for i in range(2)]) == [(0,), (0,)]
    ids["JAX_LOCAL_DEVICE_IDS"] = " 2, 3 "
    assert taken([step(i, "2", 1, **ids) for i in range(2)]) == [(2, 3), (2, 3)]
    assert told([1], ids) == [1]
    assert told(None, {}) is told(None, {"JAX_LOCAL_DEVICE_IDS": ""}) is None


def test_devices_that_are_none():
    wrong: list[Any] = [[], [-1], [0, 0], [1.0], [True], ["0"]]
    for devices in wrong:
        with pytest.raises(
            ValueError, match=r"devices=\[.*\]; it must be numbers of de"
        ):
            told(devices, {})
    for text in ("a", "0,,1", "0;1", "-1", "1,1"):
        with pytest.raises(ValueError, match=r"DEVICE_IDS='.*'; it must be numbers"):
            told(None, {"JAX_LOCAL_DEVICE_IDS": text})


def test_without_the_tasks_of_each_node_local_numbers_tell():
    def lacking(local: str, i: int) -> dict[str, str]:
        env = step(i, "1(x2)", 2, CUDA_VISIBLE_DEVICES=FOUR, SLURM_LOCALID=local)
        return {k: v for k, v in env.items() if k != "SLURM_STEP_TASKS_PER_NODE"}

    assert taken([lacking("0", 0), lacking("0", 1)]) == [None, None]
    assert taken([lacking("0", 0), lacking("1", 1)]) == [(0,), (1,)]
    for per_node, node in (("2(x", "0"), ("2", "1"), ("2(x2),1", "3"), ("2", "a")):
        env = {**step(0, "2", 1), "SLURM_STEP_TASKS_PER_NODE": per_node}
        assert _launchers._tasks_here({**env, "SLURM_NODEID": node}) is None
    env = {"SLURM_STEP_TASKS_PER_NODE": "2(x2000000000),1", "SLURM_NODEID": "1"}
    assert _launchers._tasks_here(env) == 2


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("n1", "n1"),
        ("n1,n2", "n1"),
        ("n[01-03]", "n01"),
        ("n[4,7-9],m", "n4"),
        ("gpu[01-02]-ib", "gpu01-ib"),
        ("rack-a.example.org", "rack-a.example.org"),
    ],
)
def test_the_first_node_of_a_list(nodes, first):
    env = {**step(1, "2", 1), "SLURM_STEP_NODELIST": nodes}
    address, _, port = (_launchers.coordinator(env) or "").partition(":")
    assert address == first
    assert 61440 <= int(port) < 65536
    assert _launchers.coordinator({**env, "SLURM_PROCID": "0"}) == f"{first}:{port}"
    assert _launchers.coordinator({**env, "SLURM_STEP_ID": "1"}) != f"{first}:{port}"
    chosen = {**env, "JAX_COORDINATOR_PORT": "29400"}
    assert _launchers.coordinator(chosen) == f"{first}:29400"


def test_half_of_slurm_is_refused():
    """A step whose variables are lost: its tasks would train alone, each by itself."""
    whole = step(1, "2", 1)
    for lost in ("SLURM_LOCALID", "SLURM_PROCID", "SLURM_STEP_NODELIST"):
        env = {k: v for k, v in whole.items() if k != lost}
        with pytest.raises(ValueError, match=f"one of 2 tasks, .*: {lost} not set"):
            described(None, None, None, wait=1, env=env)
        assert described("127.0.0.1:1", 2, 0, wait=1, env=env) is not None
    with pytest.raises(ValueError, match="SLURM_PROCID, SLURM_LOCALID not set"):
        described(None, None, None, wait=1, env=dict([*whole.items()][:5]))


def test_an_allocation_without_srun_says_that_it_trains_alone(capsys):
    batch = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "8", "SLURM_PROCID": "0"}
    shell = step(0, "1", 1, SLURM_NTASKS="8")  # a step of its own, as salloc starts it
    for env in (batch, shell):
        assert described(None, None, None, wait=1, env=env) is None
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "8 tasks" in said
        assert "trains alone; start it by srun" in said
    for env in (step(0, "1", 1), {**batch, "SLURM_NTASKS": "1"}, {"SLURM_JOB_ID": "7"}):
        assert described(None, None, None, wait=1, env=env) is None
    assert described("127.0.0.1:1", 2, 0, wait=1, env=batch) is not None
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "env",
    [
        {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"},
        {"PMI_RANK": "1", "PMI_SIZE": "2"},
        step(0, "1", 1, RANK="1", WORLD_SIZE="2"),
    ],
)
def test_processes_of_launchers_that_name_no_address_do_not_train_alone(env):
    rule = "this is one of 2 processes, .* JAX_NUM_PROCESSES=2 and JAX_PROCESS_ID=1"
    with pytest.raises(ValueError, match=rule):
        described(None, None, None, wait=1, env=env)
    job = described("127.0.0.1:1", 2, 1, wait=1, env=env)
    assert job is not None
    alone = {**env, "JAX_NUM_PROCESSES": "1"}
    assert described(None, None, None, wait=1, env=alone) is None
    fewer = {"1": "0", "2": "1"}
    of_one = {name: fewer.get(text) or text for name, text in env.items()}
    assert described(None, None, None, wait=1, env=of_one) is None


def test_processes_started_by_hand_inside_a_step_are_no_tasks_of_it():
    """Two in one shell of `srun --pty bash`: both got the GPU of its only task."""
    env = step(0, "1", 1, CUDA_VISIBLE_DEVICES="0,1")
    for i in (0, 1):
        job = described("127.0.0.1:1", 2, i, wait=1, env=env)
        assert job == ("127.0.0.1:1", 2, i, None)
    task = step(1, "2", 1, CUDA_VISIBLE_DEVICES="0,1")
    job = described("127.0.0.1:1", 2, 1, wait=1, env=task)
    assert job is not None
    assert job.layout == Layout(1, 2, 2, False)


def members(*how: tuple[str, tuple[int, ...] | None, str]) -> list[Member]:
    return [
        Member(i, host, "a", i, ids, sees) for i, (host, ids, sees) in enumerate(how)
    ]


CUDA = "CUDA_VISIBLE_DEVICES="


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (
            [("n1", None, CUDA + FOUR), ("n2", None, CUDA + FOUR)],
            f"2 processes: 0 on n1: all that it sees ({CUDA}{FOUR}); "
            f"1 on n2: all that it sees ({CUDA}{FOUR})",
        ),
        (
            [("n1", (i,), CUDA + FOUR) for i in range(4)],
            f"4 processes: 0-3 on n1: 1 each of devices 0-3 of {CUDA}{FOUR}",
        ),
        (
            [("n1", (0, 1), ""), ("n1", (2, 3), ""), ("n2", (0,), "")],
            "3 processes: 0-1 on n1: 2 each of devices 0-3; 2 on n2: device 0",
        ),
        (
            [("n1", None, CUDA + "0"), ("n1", None, CUDA + "1"), ("n2", (1, 3), "")],
            f"3 processes: 0 on n1: all that it sees ({CUDA}0); "
            f"1 on n1: all that it sees ({CUDA}1); 2 on n2: devices 1,3",
        ),
    ],
)
@pytest.mark.parametrize("by_hand", [False, True])
def test_a_line_says_who_takes_what(how, said, by_hand):
    assert line(members(*how), by_hand=by_hand) == said


def test_the_line_names_devices_that_several_take(monkeypatch):
    shell = members(("n", None, CUDA + "0,1"), ("n", None, CUDA + "0,1"))
    same = members(("n", (0,), ""), ("n", (0,), ""))
    for both in (shell, same):
        said = line(both, by_hand=True) or ""
        assert said.endswith(
            "Several take the same: give each its own by "
            "JAX_LOCAL_DEVICE_IDS or devices="
        )
        assert "Several" not in (line(both, by_hand=False) or "")
    long = line(members(*[(f"n{i}", None, "") for i in range(99)]), by_hand=False) or ""
    assert len(long) < 700
    assert long.endswith("...")
    plain = members(("n", None, ""), ("n", None, ""))
    assert line(plain, by_hand=False) == "2 processes: 0-1 on n: all that each sees"
    for platforms, shown in (("cpu", False), ("cuda,cpu", True), (None, True)):
        monkeypatch.setattr(_devices, "platforms", lambda value=platforms: value)
        assert bool(line(plain, by_hand=True)) == shown


def test_alone_it_takes_what_it_is_told(monkeypatch):
    monkeypatch.setattr(_join, "backends_are_initialized", lambda: False)
    options: dict[str, str] = {}
    monkeypatch.setattr(jax.config, "update", options.__setitem__)
    team = hosts.join(devices=[1, 2])
    assert team.members[0].devices == (1, 2)
    assert options == dict.fromkeys(_devices._OPTIONS, "1,2")
    monkeypatch.setattr(_join, "backends_are_initialized", lambda: True)
    with pytest.raises(RuntimeError, match="JAX has been used in this process"):
        hosts.join(devices=[1])


@pytest.mark.long
def test_two_tasks_take_their_devices():
    """Whole processes, in which JAX's own option says what was taken."""
    show = "from jax._src import xla_bridge as x; print(x.CUDA_VISIBLE_DEVICES.value)"
    code = f"from relaxjax import hosts; hosts.join(devices=None); {show}"
    port = free_address().partition(":")[2]
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "JAX_"))}
    clean |= {"JAX_PLATFORMS": "cpu", "JAX_COORDINATOR_PORT": port}
    clean |= {"PYTHONPATH": str(Path(__file__).parents[2])}
    slurm = {"SLURM_STEP_NODELIST": "localhost", "CUDA_VISIBLE_DEVICES": FOUR}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env={**clean, **step(i, "2", 1, **slurm)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in (0, 1)
    ]
    try:
        said = [process.communicate(timeout=120) for process in started]
    finally:
        for process in started:
            process.kill()
    assert [out.strip() for out, _ in said] == ["0,1", "2,3"], said
    told_line = f"2 each of devices 0-3 of {CUDA}{FOUR}"
    assert [told_line in err for _, err in said] == [True, False], said
