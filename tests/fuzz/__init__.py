"""Every parser of what others write, fed with anything at all."""
