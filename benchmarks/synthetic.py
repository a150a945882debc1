"""A made-up repository of TensorFlow's size: for benchmarks where no clone is at hand.

20,000 files in some 1,900 directories, a master with 2,000 commits since a release branch was cut,
and a fix on master that conflicts on the branch in five files: each of them was changed before it
by a chain of commits, each on the lines of the one before, among many that touch the same files
elsewhere.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

#: Files, commits of master since the branch, and of the branch itself.
FILES = 20_000
COMMITS = 2_000
RELEASE_COMMITS = 60
#: Files in which the fix conflicts, and commits that it needs, file by file.
CHAINS = (4, 3, 3, 3, 3)
#: Commits that touch the same files elsewhere.
NOISE = 250
_LINES = 400
HOT = tuple(f"tensorflow/core/hot{number}.cc" for number in range(len(CHAINS)))
_START = 1_560_000_000


@dataclass(frozen=True)
class Synthetic:
    """The repository: ``master``, ``r2.0``, and the fix on master."""

    path: Path
    fix: str
    #: What the fix needs on r2.0, in any order.
    needed: frozenset[str]


@dataclass
class _History:
    """Writes commits as a stream for ``git fast-import``."""

    stream: list[str] = field(default_factory=list)
    marks: int = 0

    def commit(self, branch: str, message: str, files: dict[str, str], parent: int = 0) -> int:
        self.marks += 1
        self.stream.append(
            f"commit refs/heads/{branch}\nmark :{self.marks}\n"
            f"committer Synthetic <synthetic@example.org> {_START + 60 * self.marks} +0000\n"
            f"data {len(message)}\n{message}\n" + (f"from :{parent}\n" if parent else "")
        )
        for name, text in files.items():
            self.stream.append(f"M 100644 inline {name}\ndata {len(text)}\n{text}\n")
        return self.marks


def make_synthetic(path: Path, *, seed: int = 0) -> Synthetic:
    """Make the repository in an empty directory; the same seed gives the same names."""
    chance = random.Random(seed)
    history = _History()
    files = {name: _text(name, 40) for name in _names(chance)}
    files |= {name: _text(name, _LINES) for name in HOT}
    cut = history.commit("master", "base", {name: _joined(text) for name, text in files.items()})
    names = sorted(set(files) - set(HOT))
    for number in range(RELEASE_COMMITS):
        changed = {chance.choice(names): f"release {number}\n"}
        history.commit("r2.0", f"release {number}", changed, cut if number == 0 else 0)
    needed = _master(history, chance, names, files, cut)
    for name, length in zip(HOT, CHAINS, strict=True):
        files[name][_chain_line(length)] = "fixed"
    fix = history.commit("master", "The fix", {name: _joined(files[name]) for name in HOT})
    path.mkdir(parents=True, exist_ok=True)
    shas = _imported(path, history)
    return Synthetic(path, shas[fix], frozenset(shas[mark] for mark in needed))


def _master(
    history: _History,
    chance: random.Random,
    names: list[str],
    files: dict[str, list[str]],
    cut: int,
) -> set[int]:
    """Write master since the branch; return the marks of what the fix will need."""
    links = [(chain, link) for chain, length in enumerate(CHAINS) for link in range(length)]
    chained = sorted(chance.sample(range(COMMITS), len(links)))
    noise = set(chance.sample(sorted(set(range(COMMITS)) - set(chained)), NOISE))
    order = dict(zip(chained, links, strict=True))
    needed = set()
    for number in range(COMMITS):
        changed = chance.sample(names, chance.randint(1, 6))
        for name in changed:
            files[name][chance.randrange(40)] = f"change {number}"
        if number in order:
            chain, link = order[number]
            changed.append(HOT[chain])
            line = _chain_line(link)
            files[HOT[chain]][line : line + 2] = [f"link {chain} {link} {each}" for each in (0, 1)]
        elif number in noise:
            changed.append(chance.choice(HOT))
            files[changed[-1]][chance.randrange(60, _LINES)] = f"noise {number}"
        contents = {name: _joined(files[name]) for name in changed}
        mark = history.commit("master", f"change {number}", contents, cut if number == 0 else 0)
        if number in order:
            needed.add(mark)
    return needed


def _chain_line(link: int) -> int:
    """Each link replaces the second line of the link before, and the line below."""
    return 10 + link


def _names(chance: random.Random) -> Iterator[str]:
    """Yield paths, six directories deep at most, some ten to a directory."""
    folders = [("tensorflow",)]
    while len(folders) < FILES // 10 - 100:
        above = chance.choice(folders)
        if len(above) < 6:
            folders.append((*above, f"part{len(folders)}"))
    for number in range(FILES - len(CHAINS)):
        yield "/".join((*chance.choice(folders), f"file{number}.cc"))


def _text(name: str, lines: int) -> list[str]:
    return [f"{name} line {line}" for line in range(lines)]


def _joined(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def _imported(path: Path, history: _History) -> dict[int, str]:
    """Feed the stream to git; return mark -> SHA."""
    marks = path / "marks"
    subprocess.run(["git", "init", "--quiet", "--initial-branch=master", path], check=True)
    subprocess.run(
        ["git", "fast-import", "--quiet", f"--export-marks={marks}"],
        cwd=path,
        input="".join(history.stream).encode(),
        check=True,
    )
    told = (line.split() for line in marks.read_text().splitlines())
    shas = {int(mark[1:]): sha for mark, sha in told}
    marks.unlink()
    return shas
