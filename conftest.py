"""Sixteen emulated CPU devices, for the tests and the doctests alike."""

import os

# XLA's CPU thread pool must outnumber the emulated devices, or their rendezvous
# starves; it is sized once, before the backend starts.
os.environ.setdefault("NPROC", "40")

import platform
from pathlib import Path

import jax

# XLA's plain emitters, and one module of LLVM for a program instead of dozens: it
# compiles in a third of the time. Without fused multiply-add, which the plain emitters
# would use here and there, though workers must agree to the bit. A version of XLA that
# does not know a flag stops at it; flags already set come last, and hold.
if jax.__version_info__ < (0, 11) and platform.machine() in ("x86_64", "AMD64"):
    fast = ["--xla_cpu_use_fusion_emitters=false", "--xla_cpu_max_isa=AVX"]
    fast += ["--xla_cpu_parallel_codegen_split_count=1"]
    os.environ["XLA_FLAGS"] = " ".join([*fast, os.environ.get("XLA_FLAGS", "")])

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 16)
# Most of a test's time is LLVM's; HLO, which some tests read, stays as it is.
jax.config.update("jax_disable_most_optimizations", True)
# Many tests compile the same program; two that write it at once cost a compilation.
CACHE = Path(__file__).parent / ".pytest_cache" / "jax"
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
