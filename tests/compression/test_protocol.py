"""What every compressor is: its law, its defaults, and the feedback around it."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from relaxjax import compression
from relaxjax.compression import Compressor, Law
from relaxjax.compression._protocol import (
    NO_FEEDBACK,
    contractive,
    require_compressor,
    with_feedback,
    zeros_in,
)
from relaxjax.compression.feedback._error_feedback import ErrorFeedbackState
from tests.compression.draws import noise_of

D_MINUS_1 = Law(omega=lambda d: d - 1, linear=True)
CODE = Compressor(
    "code", lambda x, noise: x, lambda payload, size, noise: payload, D_MINUS_1
)


def test_what_is_no_compressor_is_refused_with_an_example():
    require_compressor("f", "code", None)
    require_compressor("f", "code", CODE)
    with pytest.raises(TypeError, match=r"f: code=8 is not .*\.quantize\(8\)$"):
        require_compressor("f", "code", 8)
    with pytest.raises(TypeError, match=r"compression.sign\(\)$"):
        require_compressor("f", "code", "sign", "sign()")


@pytest.mark.parametrize("name", ["omega", "delta"])
def test_a_law_is_a_function_of_the_size(name):
    says = rf"Law: {name}=0.5 must be a function .*: Law\({name}=lambda d: 0.5\)"
    wrong: dict[str, Any] = {name: 0.5}
    with pytest.raises(TypeError, match=says):
        compression.Law(**wrong)


def test_nothing_is_declared_unless_told():
    assert (Law().omega, Law().delta, Law().linear) == (None, None, False)
    assert (CODE.random, CODE.algorithm) == (False, "two_shot")
    assert CODE.feedback is NO_FEEDBACK


def test_without_feedback_the_mean_comes_out():
    g, c, mean = (jnp.full(2, v) for v in (1.0, 2.0, 3.0))
    state = NO_FEEDBACK.init(g)
    assert NO_FEEDBACK.before(g, state) is g
    assert NO_FEEDBACK.after(g, c, mean, state) == (mean, ())
    assert NO_FEEDBACK.absent is None
    assert not NO_FEEDBACK.momentum


def test_what_is_unbiased_is_divided_by_1_plus_omega():
    made = contractive(CODE)
    assert made.law.delta is not None
    assert [made.law.delta(d) for d in (1, 4)] == [1, 1 / 4]
    assert (made.law.omega, made.law.linear) == (None, True)
    decoded = made.decompress(jnp.full(4, 8.0), 4, None)
    assert decoded.dtype == jnp.float32
    np.testing.assert_array_equal(decoded, np.full(4, 2.0))
    third = made.decompress(jnp.full(3, 1.0), 3, None)
    np.testing.assert_array_equal(third, np.full(3, np.float32(1 / 3)))


def test_what_is_a_contraction_stays_as_it_is():
    both = CODE._replace(law=Law(omega=D_MINUS_1.omega, delta=lambda d: 1 / d))
    assert contractive(both) is both


def test_decoding_sees_the_noise_of_the_sender():
    codec = compression.random_k(0.25)
    x, noise = jnp.arange(1.0, 9.0), noise_of(0)
    plain = codec.decompress(codec.compress(x, noise), 8, noise)
    made = contractive(codec)
    found = made.decompress(made.compress(x, noise), 8, noise)
    np.testing.assert_allclose(found, plain / 4, rtol=1e-6)


def test_feedback_around_what_cannot_have_it():
    wrong: Any = "sign"
    says = r"none: compressor must be of type Compressor, got 'sign': try sign\(\)"
    with pytest.raises(TypeError, match=says):
        with_feedback(wrong, NO_FEEDBACK)
    fed = compression.error_feedback(CODE)
    with pytest.raises(ValueError, match=r"ef21 around code, which already has err"):
        compression.ef21(fed)
    with pytest.raises(ValueError, match="code: it is neither a contraction nor un"):
        with_feedback(CODE._replace(law=Law()), NO_FEEDBACK)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_feedback_begins_with_wide_zeros(dtype):
    state = zeros_in(ErrorFeedbackState)(jnp.ones((2, 3), dtype))
    assert state.residual.dtype == jnp.float32
    np.testing.assert_array_equal(state.residual, np.zeros((2, 3)))
