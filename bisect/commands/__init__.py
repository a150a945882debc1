"""What each command of ``perfbisect`` does; ``cli.py`` puts them together."""
