"""Benchmarks of speed and memory, and the papers' tables: ``run.py --help`` lists them."""

from bench.commands import bench

if __name__ == "__main__":
    bench(prog_name="python docs/benchmarks/run.py")
