"""Engines carry out builds and runs: on this machine, or on a cluster."""
