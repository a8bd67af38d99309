"""Clusters that are not of this machine: a scheduler by address, Kubernetes, SLURM. Each yields a Dask client."""
