"""Looking up many commits with one git process."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import TracebackType

from perfbisect.git.process import Git
from perfbisect.git.values import BareCommit


class Objects:
    """The commits of one repository by name; holds a git process, so use ``with``."""

    def __init__(self, git_dir: Path) -> None:
        git = Git(git_dir)
        self._process = subprocess.Popen(
            git.command(["cat-file", "--batch"]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=git.environment,
        )

    def __enter__(self) -> Objects:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate()

    def commit(self, name: str) -> BareCommit | None:
        """Return the commit that a name means, or None if it means none, or more than one.

        Args:
            name: a revision without line breaks; it can't be taken for an option here.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{name}^{{commit}}\n".encode())
        self._process.stdin.flush()
        # "<name> commit <bytes>", or the name as asked and "missing" or "ambiguous".
        words = self._process.stdout.readline().decode("utf-8", "replace").split()
        if len(words) != 3 or words[1] != "commit" or not words[2].isdigit():
            return None
        body = self._process.stdout.read(int(words[2]) + 1)
        head = body.partition(b"\n\n")[0].decode("utf-8", "replace").split("\n")
        fields = [line.partition(" ") for line in head]
        trees = [value for key, _, value in fields if key == "tree"]
        parents = tuple(value for key, _, value in fields if key == "parent")
        return BareCommit(words[0], trees[0], parents)
