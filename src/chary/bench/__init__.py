"""Benchmarks that `chary bench` runs."""
