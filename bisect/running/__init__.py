"""What a runner is made of: environments, commands, observation of the host, outcomes."""
