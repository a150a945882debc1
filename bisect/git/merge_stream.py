"""Many merges by one git process: ``git merge-tree --stdin`` as a conversation.

Git writes what it has found to a pipe when it begins to tell the messages of a merge, and the end
of that merge only with the next one. So each question is followed by an idle one (a commit merged
with itself), whose beginning says that the answer before it is whole.
"""

from __future__ import annotations

import os
import select
import subprocess
from types import TracebackType

from perfbisect.git.process import Git, bound, failure

#: Seconds within which git must answer an idle question; one that does not can't be talked to.
_PATIENCE = 10.0


class MergeStream:
    """Merges commits one after the other; holds a git process, so use ``with`` or ``close``."""

    def __init__(self, git: Git, idle: str) -> None:
        """Begin.

        Args:
            idle: a commit to merge with itself.
        """
        self._command = ["merge-tree", "--write-tree", "--messages", "--stdin"]
        self._idle = f"{idle} {idle}\n"
        self._process = subprocess.Popen(
            git.command(self._command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=git.environment,
        )
        bound(self._process.pid)
        self._rest = b""

    def __enter__(self) -> MergeStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def answers(self) -> bool:
        """Return whether this git can be talked to; asked once, before anything else."""
        assert self._process.stdout is not None
        self._ask(self._idle)
        ready, _, _ = select.select([self._process.stdout], [], [], _PATIENCE)
        try:
            return bool(ready) and self._token() == b"1" and bool(self._token())
        except (OSError, EOFError):
            return False

    def merge(self, left: str, right: str) -> tuple[bool, bytes]:
        """Merge two commits; return whether it is clean, and what ``merge-tree -z`` prints then.

        Raises:
            GitError: the process has ended.
        """
        try:
            self._ask(f"{left} {right}\n{self._idle}")
            # What was left of the idle question before.
            self._until_empty()
            self._until_empty()
            clean = self._token() == b"1"
            told = [*self._until_empty(), b"", *self._until_empty()]
            self._token(), self._token()
        except (OSError, EOFError) as error:
            self.close()
            raise failure(self._command, self._process.returncode, str(error)) from error
        return clean, b"\0".join(told) + b"\0"

    def _ask(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode())
        self._process.stdin.flush()

    def _until_empty(self) -> list[bytes]:
        tokens: list[bytes] = []
        while token := self._token():
            tokens.append(token)
        return tokens

    def _token(self) -> bytes:
        assert self._process.stdout is not None
        while b"\0" not in self._rest:
            chunk = os.read(self._process.stdout.fileno(), 1 << 16)
            if not chunk:
                raise EOFError("it ended before its answer")
            self._rest += chunk
        token, _, self._rest = self._rest.partition(b"\0")
        return token
