"""Environment variables by which `relaxjax run` tells a process of its job."""

COUNT = "JAX_NUM_PROCESSES"  # how many there are, for `jax.distributed` too
TOKEN = "RELAXJAX_JOB_TOKEN"  # the secret of the job
