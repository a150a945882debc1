"""kill -9 at every state transition: a process that dies exactly there, and what follows."""
