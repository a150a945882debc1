"""``perfbisect fetch-archives``: what old commits download, kept before its hosts are gone."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from perfbisect.commands import options
from perfbisect.core.archives import Archive
from perfbisect.errors import BadInputError
from perfbisect.report import plural, printable
from perfbisect.settings import Settings

#: Puzzles that are shown one by one without ``--json``.
_MOST_PUZZLES = 20

Distdir = Annotated[
    Path | None,
    typer.Option(
        parser=options.path_option("--distdir"),
        metavar="PATH",
        help="Where the archives go [env: PERFBISECT_DISTDIR].",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]


def fetch_archives(
    repo: options.Repo,
    good: options.Good,
    bad: options.Bad,
    distdir: Distdir = None,
    dry_run: DryRun = False,
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Download what the commits of a range download, and keep it.

    Exit code 0: every archive is there; 1: some can't be had, and their dead addresses are listed.
    """
    settings = options.make_settings(data_dir=data_dir, distdir=distdir)
    place = settings.archives_dir
    if place.exists() and not place.is_dir():
        raise BadInputError(
            f"--distdir: '{place}' is a file; give a directory", field="distdir", value=str(place)
        )
    earlier, later, mirror = _range(settings, repo, good, bad)
    # Docker's client, which building needs, takes long to import.
    from perfbisect.archive_download import ArchiveFetcher
    from perfbisect.archive_search import archives_between

    found = archives_between(mirror, earlier, later)
    options.say(
        f"{plural(len(found.archives), 'archive')} named in {plural(found.files, 'version')} of "
        f"WORKSPACE and .bzl files between {earlier[:10]} and {later[:10]}"
    )
    if dry_run:
        fetcher = ArchiveFetcher(settings.archives_dir)
        missing = [each for each in found.archives if fetcher.find(each) is None]
        _show_plan(missing, found.puzzles, as_json=as_json)
        return
    fetched = _fetch(settings, found.archives)
    _show(fetched, found.puzzles, settings.archives_dir, as_json=as_json)
    raise typer.Exit(0 if all(each.path for each in fetched) else 1)


def _range(settings: Settings, repo: str, good: str, bad: str) -> tuple[str, str, Path]:
    """Return the earlier and the later end, whichever was given as which, and the mirror."""
    from perfbisect.git.axis import is_ancestor
    from perfbisect.git.process import Git
    from perfbisect.history import open_mirror

    mirror = open_mirror(repo, settings.mirrors_dir, progress=None)
    ends = [mirror.resolve(good, "good").sha, mirror.resolve(bad, "bad").sha]
    git = Git(mirror.path)
    for earlier, later in (ends, ends[::-1]):
        if is_ancestor(git, earlier, later):
            return earlier, later, mirror.path
    raise BadInputError(
        f"good {ends[0][:12]} and bad {ends[1][:12]}: neither is an ancestor of the other",
        field="good",
        value=good,
    )


def _fetch(settings: Settings, archives: Sequence[Archive]) -> list[Any]:
    """Fetch with progress: a bar on a terminal, else a line for each."""
    from perfbisect.archive_download import ArchiveFetcher, Fetched

    console = options.standard_error()
    with _bar(len(archives), live=console.is_terminal) as advance:

        def done(fetched: Fetched) -> None:
            advance(fetched.archive.name)
            if not console.is_terminal:
                options.say(_line(fetched))

        return ArchiveFetcher(settings.archives_dir).fetch_all(archives, done)


@contextmanager
def _bar(total: int, *, live: bool) -> Iterator[Any]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    progress = Progress(
        *columns, TimeRemainingColumn(), console=options.standard_error(), disable=not live
    )
    lock = threading.Lock()
    with progress:
        task = progress.add_task("archives", total=total)

        def advance(name: str) -> None:
            with lock:
                progress.update(task, advance=1, description=printable(name)[:40])

        yield advance


def _line(fetched: Any) -> str:
    name = printable(fetched.archive.name)
    if fetched.known:
        return f"{name}: there already"
    if fetched.path is not None:
        return f"{name}: {fetched.size} bytes from {printable(fetched.source)}"
    return f"{name}: can't be had"


def _show_plan(missing: Sequence[Archive], puzzles: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        rows = [{"sha256": each.sha256, "urls": list(each.urls)} for each in missing]
        options.print_json({"missing": rows, "not_understood": list(puzzles)})
        return
    for each in missing:
        typer.echo(f"{each.sha256[:16]}  {printable(each.name)}  {printable(each.urls[0])}")
    options.say(f"{plural(len(missing), 'archive')} missing")
    _say_puzzles(puzzles)


def _show(fetched: Sequence[Any], puzzles: Sequence[str], distdir: Path, *, as_json: bool) -> None:
    if as_json:
        rows = [
            {
                "sha256": each.archive.sha256,
                "name": each.archive.name,
                "path": str(each.path) if each.path else None,
                "size": each.size,
                "known": each.known,
                "source": each.source,
                "dead": [{"url": dead.url, "why": dead.why} for dead in each.dead],
            }
            for each in fetched
        ]
        options.print_json({"archives": rows, "not_understood": list(puzzles)})
        return
    for each in fetched:
        for dead in each.dead:
            typer.echo(f"dead: {printable(dead.url)} ({printable(dead.why)})")
    lost = [each for each in fetched if each.path is None]
    for each in lost:
        typer.echo(f"lost: {printable(each.archive.name)} (SHA-256 {each.archive.sha256})")
    new = sum(each.path is not None and not each.known for each in fetched)
    typer.echo(
        f"{plural(len(fetched) - len(lost), 'archive')} in {distdir}, {new} of them new, "
        f"{len(lost)} lost"
    )
    _say_puzzles(puzzles)


def _say_puzzles(puzzles: Sequence[str]) -> None:
    for puzzle in puzzles[:_MOST_PUZZLES]:
        options.say(f"not understood: {printable(puzzle)}")
    if len(puzzles) > _MOST_PUZZLES:
        options.say(f"not understood: {len(puzzles) - _MOST_PUZZLES} more (--json has all)")
