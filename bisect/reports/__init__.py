"""Reports: what is said of verdicts and experiments, and the documents made of it. All pure."""
