"""Controllers and tables by name: what they build, read and refuse."""

from typing import Any

import jax
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import controllers, emulate
from relaxjax._core._relaxation import Training
from relaxjax._core._tree import leaf_names
from relaxjax._names import parse
from relaxjax.controllers import _from_state
from relaxjax.controllers._l_greco import l_greco_of_state
from tests.helpers import assert_equal, batches, problem, train_step_of

N = 4
TRAINING = Training(optax.sgd(0.1, momentum=0.9), 0.1, 100, N)


def trained(tx: Any, steps: int) -> Any:
    mesh = emulate(N)
    run = relaxjax.init(tx, problem(), mesh)
    step = relaxjax.data_parallel(train_step_of(tx), mesh)
    for batch in batches(steps, 2 * N):
        *run, _ = step(*run, batch)
    return run


@pytest.mark.long
def test_codes_by_name_are_those_of_phases():
    tx = parse("all_reduce@two_shot").build("data", TRAINING, codes="table:0=8,3=4")
    eight, four = (
        parse(f"all_reduce+quantize{bits}+ef14@two_shot").build("data", TRAINING)
        for bits in (8, 4)
    )
    assert_equal(trained(tx, 6), trained(relaxjax.by_step({0: eight, 3: four}), 6))


@pytest.mark.long
@pytest.mark.few(4)
@pytest.mark.parametrize("name", ["local_sgd@two_shot", "delay", "diloco"])
def test_all_that_takes_codes_takes_those_that_change(name):
    tx = parse(name).build("data", TRAINING, codes="table:0=8,3=4")
    params, _ = trained(tx, 9)
    assert np.isfinite(relaxjax.consensus(params)["layer1"]["w"]).all()


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("power_sgd", {"codes": "table:0=8"}, "has no code, and takes no codes="),
        ("all_reduce+sign", {"codes": "table:0=8"}, "both say the code"),
        ("all_reduce", {"codes": "table:0=x"}, "must be STEP=LEVEL"),
        ("all_reduce", {"codes": "accordion:low=4"}, "here give a table"),
        ("all_reduce", {"codes": "table:5=4"}, "from step 0 on"),
        ("all_reduce", {"codes": "table:0=99"}, "bits"),
        ("all_reduce", {"ranks": "l_greco:rank=1"}, "here give a table"),
    ],
)
def test_what_is_refused(name, options, said):
    with pytest.raises(ValueError, match=said):
        parse(name).build("data", TRAINING, **options)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("all_reduce", {"codes": "l_greco:rank=1,every=5"}, "no controller 'l_greco'"),
        ("all_reduce", {"codes": "accordion:low=4,high=8"}, "accordion needs every"),
        ("power_sgd", {"ranks": "l_greco:every=5"}, "l_greco needs rank"),
        ("power_sgd", {"ranks": "l_greco:rank=1,every=5", "highest": 4}, "both say"),
        (
            "local_sgd",
            {"codes": "accordion:low=4,high=8,every=5"},
            "common to the workers",
        ),
        (
            "one_bit_adam",
            {"codes": "accordion:low=4,high=8,every=5"},
            "optimizer has none",
        ),
    ],
)
def test_controllers_that_are_refused(name, options, said):
    with pytest.raises(ValueError, match=said):
        parse(name).conducted("data", lambda rate: TRAINING, **options)


@pytest.mark.long
def test_errors_are_those_of_the_sums():
    """By hand: the singular values of what power_sgd sent in a period."""
    tx = optax.chain(
        relaxjax.power_sgd("data", rank=1, highest=2),
        controllers.norms_of_sums(3),
        TRAINING.optimizer,
    )
    _, state = trained(tx, 3)
    told = _from_state.errors_of_ranks(1, state, 2.5)
    compressed = {k for k, q in _named(state[0].right).items() if q.ndim == 4}
    assert compressed
    assert told["errors"].keys() == told["layers"].keys() == compressed
    for name, errors in told["errors"].items():
        matrix = np.asarray(_named(state[1].total)[name][0], np.float64)
        assert told["layers"][name] == [1, *matrix.shape]
        sigma = np.linalg.svd(matrix, compute_uv=False)
        ranks = range(1, 1 + len(errors))
        expected = [np.sqrt(np.sum(sigma[r:] ** 2)) for r in ranks]
        np.testing.assert_allclose(errors, expected, rtol=1e-9, atol=1e-12)


def _named(tree: Any) -> dict[str, Any]:
    return dict(zip(leaf_names(tree), jax.tree.leaves(tree), strict=True))


def test_the_whole_norm_is_that_of_all_leaves():
    tx = optax.chain(
        relaxjax.all_reduce("data"), controllers.norms_of_sums(2), TRAINING.optimizer
    )
    _, state = trained(tx, 2)
    told = _from_state.whole_norm(state, 2.5)
    sums = [np.ravel(x[0]) for x in jax.tree.leaves(state[1].total)]
    total = float(np.linalg.norm(np.concatenate(sums)))
    assert told["loss"] == 2.5
    assert told["norms"][""] == pytest.approx(total, rel=1e-6)


def test_l_greco_of_the_state_decides_as_that_of_stated_layers():
    layers = {"w": (8, 8), "v": (80, 80)}
    errors = {"w": [9.0, 4.0, 1.0, 0.0], "v": [3.0, 2.5, 2.0, 1.5]}
    told = {"errors": errors, "layers": {k: [1, *x] for k, x in layers.items()}}
    stated = controllers.l_greco(layers, 2)
    read = l_greco_of_state(2)
    assert read.update(read.init(), 100, told).level == {"w": 3, "v": 1}
    assert stated.update(stated.init(), 100, told).level == {"w": 3, "v": 1}
    told["layers"]["w"] = [100, 8, 8]  # a hundred matrices weigh more
    assert read.update(read.init(), 100, told).level == {"w": 2, "v": 2}
