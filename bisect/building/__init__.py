"""Parts of the builder: where commands run, what they are, and what their failures mean."""
