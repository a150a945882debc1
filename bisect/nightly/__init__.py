"""Rooms behind ``perfbisect.series``: definitions, points, changes, confirmation, own nightly."""
