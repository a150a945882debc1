"""``python -m perfbisect``."""

from perfbisect.cli import main

main()
