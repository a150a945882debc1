"""Plumbing over the git command line; ``perfbisect.history`` is the door to it."""
