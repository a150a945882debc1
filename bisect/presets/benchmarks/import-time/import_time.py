"""Import a module in fresh interpreters and print the seconds that each import took."""

import argparse
import subprocess
import sys

PROGRAM = """
import importlib, sys, time
started = time.perf_counter()
importlib.import_module(sys.argv[1])
print(time.perf_counter() - started)
"""


def main() -> None:
    """Print one line per import; fail with the module's own error if it can't be imported."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("module", help="name of the module, e.g. tensorflow")
    parser.add_argument("--times", type=int, default=6, help="fresh interpreters to start")
    arguments = parser.parse_args()
    for _ in range(arguments.times):
        command = [sys.executable, "-c", PROGRAM, arguments.module]
        output = subprocess.check_output(command, universal_newlines=True)
        # Modules may print on import: the time is the last line.
        print(f"import: {float(output.split()[-1]):.6f} s", flush=True)


if __name__ == "__main__":
    main()
