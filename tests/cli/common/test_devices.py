"""Where the command's workers run."""

import os

import jax
import pytest
from jax.sharding import Mesh

from relaxjax.cli.common import _devices
from relaxjax.workers._mesh import Emulation


@pytest.fixture(autouse=True)
def _one_host(monkeypatch):
    monkeypatch.setenv("NPROC", "3")  # restored afterwards


@pytest.mark.parametrize(("workers", "size"), [(None, 8), (1, 1), (5, 5), (16, 16)])
def test_workers_get_a_device_each(workers, size):
    mesh = _devices.set_up(workers)
    assert isinstance(mesh, Mesh)
    assert dict(mesh.shape) == {"data": size}
    assert int(os.environ["NPROC"]) >= 2 * size


def test_more_workers_than_devices_are_emulated():
    assert _devices.set_up(17) == Emulation((("data", 17),))
    assert os.environ["NPROC"] == "3"


def test_one_gpu_holds_all_workers(monkeypatch):
    class Gpu:
        platform = "gpu"

    monkeypatch.setattr(jax, "devices", lambda: [Gpu()])
    assert _devices.mesh_of(4) == Emulation((("data", 4),))
    assert _devices.describe(_devices.mesh_of(4)) == "emulated on one gpu device"


def test_places_are_described():
    assert "share this machine's cores" in _devices.describe(_devices.mesh_of(2))
    assert _devices.describe(_devices.mesh_of(32)) == "emulated on one cpu device"
    assert _devices.own_rows(_devices.mesh_of(2)) == (0, 1)
    assert _devices.own_rows(_devices.mesh_of(32)) == (0, 1)


@pytest.fixture
def two_processes(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)


@pytest.mark.usefixtures("two_processes")
def test_several_processes_use_all_devices():
    mesh = _devices.set_up(None, 2)
    assert mesh.size == 16
    assert _devices.describe(mesh) == "the cpu devices of 2 processes"
    assert _devices.own_rows(mesh) == (0, 2)
    assert _devices.one_worker() == Emulation((("data", 1),))


@pytest.mark.usefixtures("two_processes")
def test_several_processes_take_no_other_number_of_workers():
    with pytest.raises(ValueError, match=r"--workers 4: the 2 processes have 16 dev"):
        _devices.set_up(4, 2)
