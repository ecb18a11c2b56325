"""Benchmarks: each prints its conditions and a table, and saves JSON and a plot."""
