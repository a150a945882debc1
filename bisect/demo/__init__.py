"""The demo: a small TensorFlow-shaped repository with known performance changes."""
