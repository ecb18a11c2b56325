"""`python -m benchmarks NAME`, from a clone."""

from benchmarks.commands.bench import bench

if __name__ == "__main__":
    bench(prog_name="python -m benchmarks")
