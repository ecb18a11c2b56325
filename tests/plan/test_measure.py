"""Links of devices: fits that a person can check, and meshes without links."""

import jax
import pytest

import relaxjax
from relaxjax import plan
from relaxjax.plan import _measure


def test_a_fit_finds_what_made_its_points():
    points = [(b, 3e-4 + 2 * b / 1e8) for b in (1000, 10_000, 1_000_000)]
    fit = _measure._fit(points, lambda b: (1, 2 * b))
    assert fit.link.latency == pytest.approx(3e-4)
    assert fit.link.bandwidth == pytest.approx(1e8)
    assert fit.error < 1e-9


def test_a_latency_is_never_negative():
    fit = _measure._fit([(1000, 1e-6), (10_000, 1e-3)], lambda b: (1, b))
    assert fit.link.latency == 0
    assert fit.link.bandwidth > 0
    assert fit.error > 0.1


@pytest.mark.long
def test_a_mesh_is_measured_and_ranked():
    mesh = jax.make_mesh((2, 2), ("host", "device"))
    sizes = {"sizes": (2**12, 2**14), "rounds": 1, "codecs": ("sign",)}
    found = plan.measure(mesh, **sizes)
    assert found.network.workers == 4
    assert found.network.per_host == 2
    assert set(found.fits) == {"link", "psum", "inside"}
    assert found.network.codec["sign"] > 0
    assert not found.network.overlap  # of CPU devices
    plan.rank(plan.Model.of_size(1000, compute=0.1), found.network)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"sizes": (4096,)}, "sizes="),
        ({"codecs": ("zip",)}, "'zip' is not a compressor"),
        ({"axis_name": "batch"}, "batch"),
    ],
)
def test_what_is_refused(how, says):
    with pytest.raises(ValueError, match=says):
        plan.measure(jax.make_mesh((2,), ("data",)), **how)


def test_meshes_without_links():
    with pytest.raises(ValueError, match="emulated mesh has no links"):
        plan.measure(relaxjax.emulate(4))
    with pytest.raises(ValueError, match="no link to measure"):
        plan.measure(jax.make_mesh((1,), ("data",)))
    with pytest.raises(ValueError, match="must be one axis, or two"):
        plan.measure(jax.make_mesh((2, 1, 1), ("a", "b", "c")))
