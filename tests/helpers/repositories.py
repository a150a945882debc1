"""Real git repositories for tests, made with the git command line."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "C",
    "GIT_COMMITTER_EMAIL": "c@example.org",
    "LC_ALL": "C",
}


class Workshop:
    """A working copy to make commits in; time passes a minute with each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self._minutes = 0
        self.git("init", "--quiet", "--initial-branch=master", "--template=")

    def wait_until(self, moment: datetime) -> None:
        """Let time pass: the next commit is a minute after this moment."""
        self._minutes = (int(moment.timestamp()) - 1_560_000_000) // 60

    def try_git(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run git here."""
        date = f"@{1_560_000_000 + 60 * self._minutes} +0200"
        return subprocess.run(
            ["git", *arguments],
            cwd=self.path,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ
            | _ENVIRONMENT
            | {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date, "HOME": str(self.path)},
        )

    def git(self, *arguments: str, stdin: str = "") -> str:
        """Run git here, and insist that it succeeds."""
        done = self.try_git(*arguments, stdin=stdin)
        assert done.returncode == 0, (arguments, done.stderr)
        return done.stdout.strip()

    def commit(self, message: str, files: Mapping[str, str | None] | None = None) -> str:
        """Write files (None removes one), commit everything, return the SHA."""
        for name, content in (files or {}).items():
            place = self.path / name
            if content is None:
                place.unlink()
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(content)
        self._minutes += 1
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--file=-", stdin=message)
        return self.head

    def merge(self, branch: str, message: str = "Merge") -> str:
        """Merge a branch with a merge commit, return the SHA."""
        self._minutes += 1
        self.git("merge", "--quiet", "--no-ff", "-m", message, branch)
        return self.head

    def switch(self, branch: str, start: str = "") -> None:
        """Switch to a branch, making it at ``start`` if given."""
        self.git("checkout", "--quiet", *(["-B", branch, start] if start else [branch]))

    @property
    def head(self) -> str:
        """SHA of HEAD."""
        return self.git("rev-parse", "HEAD")

    def tree(self, rev: str = "HEAD") -> str:
        """SHA of a revision's tree."""
        return self.git("rev-parse", f"{rev}^{{tree}}")
