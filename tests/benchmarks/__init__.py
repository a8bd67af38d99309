"""Benchmarks: run by hand (`make benchmark`); each case also runs once, tiny, as a test."""
