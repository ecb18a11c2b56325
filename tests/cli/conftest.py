"""Starts the tests' own devices before a command would choose their number."""

import jax

jax.devices()
