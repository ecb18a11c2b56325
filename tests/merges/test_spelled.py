"""Rules by their names, on command lines and in comparisons."""

import jax
import numpy as np
import optax
import pytest
from typer.testing import CliRunner

import relaxjax
from relaxjax import merges
from relaxjax._core._relaxation import Training
from relaxjax._names import parse
from relaxjax.cli._app import app
from relaxjax.merges import spelled

GOOD = {
    "mean": "mean",
    "rda": "rda",
    "rda:length=median": merges.rda(),
    "clipped": merges.clipped(),
    "clipped:by=all,cap=3": merges.clipped("all", cap=3),
    "clipped:cap=None": merges.clipped(cap=None),
    "trimmed:b=2": merges.trimmed(2),
    "centered_clip:radius=0.5,steps=3": merges.centered_clip(0.5, 3),
    "nearest:f=1,rule=median": merges.nearest(1, merges.median()),
}


@pytest.mark.parametrize("text", GOOD)
def test_a_text_is_a_rule(text):
    assert spelled(text) == GOOD[text]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mode", "there is no rule 'mode'; there is mean, rda, clipped, median"),
        ("trimmed", "merge 'trimmed': trimmed has other arguments"),
        ("trimmed:b=-1", "merge 'trimmed:b=-1': trimmed: b=-1 must be"),
        ("trimmed:b=x", "b='x' must be a whole number"),
        ("median:b=1", "median has other arguments"),
        ("nearest:f=1,rule=mode", "mode is not a rule"),
        ("clipped:by", "clipped: by='' must be one of"),
    ],
)
def test_a_text_that_is_none_says_why(text, said):
    with pytest.raises(ValueError, match="merge") as found:
        spelled(text)
    assert said in str(found.value)


@pytest.mark.parametrize(
    "name", ["all_reduce", "all_reduce+quantize8", "local_sgd", "diloco", "muloco"]
)
def test_a_worker_that_is_not_finite_is_absent_by_name(name):
    """Matrices and vectors alike, in codes or without."""
    training = Training(optax.sgd(0.1), 0.1, 1, 4)
    options = {} if "all_reduce" in name else {"sync_every": 1}
    tx = parse(name).build("data", training, merge="clipped", **options)
    params = {"w": np.ones((4, 300), np.float32), "b": np.ones(3, np.float32)}

    def step(params, opt_state, batch):
        grads = jax.tree.map(lambda x: x * batch, params)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {}

    mesh = relaxjax.emulate(4)
    params, opt_state = relaxjax.init(tx, params, mesh)
    batch = np.array([1, 1, 1, np.nan], np.float32)
    run = relaxjax.data_parallel(lambda p, s, b: step(p, s, b.sum()), mesh)
    params, _, _ = run(params, opt_state, batch)
    for x in jax.tree.leaves(params):
        right = x[:3] if options else x
        assert np.isfinite(right).all()
        assert (np.asarray(right) < 1).all()


def test_commands_take_a_rule_by_its_name():
    runner = CliRunner()
    done = runner.invoke(app, ["explain", "diloco", "--merge", "trimmed:b=1"])
    assert done.exit_code == 0, done.output
    assert "merges by trimmed" in " ".join(done.output.split())
    for words, said in (
        (["explain", "diloco", "--merge", "mode"], "there is no rule 'mode'"),
        (["explain", "gossip", "--merge", "median"], "has no option 'merge'"),
        (
            ["train", "--relaxation", "heloco", "--merge", "median"],
            "has no option 'merge'",
        ),
    ):
        done = runner.invoke(app, words)
        assert done.exit_code == 2
        assert said in " ".join(done.output.split())
