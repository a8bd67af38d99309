"""Benchmarks, run by hand (`make benchmark`). Each case also runs once as a test with small data."""
