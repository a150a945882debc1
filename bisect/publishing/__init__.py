"""Published wheels: which there are, getting them, and which commit they were built from."""
