"""Tables, queries and artifacts. docs/database.md explains every column."""
