"""The demo: a small TensorFlow-shaped repository with known performance changes."""

#: Where the demo's repository stands in its data directory.
DIRECTORY = "demo-repository"
