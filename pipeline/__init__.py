"""Locally Linear Embedding of millions of points as a distributed batch job."""
