"""perfbisect.building.checkout: kept directories."""

from __future__ import annotations

import os
from pathlib import Path

from perfbisect.building.checkout import remove, slot, sync_tree


def make(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def snapshot(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): path.read_text()
        for path in root.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def test_first_checkout_is_moved_in(tmp_path: Path) -> None:
    """Where nothing is kept yet, the incoming tree becomes the kept one."""
    sync_tree(make(tmp_path / "new", {"a/b": "1"}), tmp_path / "kept")
    assert snapshot(tmp_path / "kept") == {"a/b": "1"}
    assert not (tmp_path / "new").exists()


def test_equal_files_are_not_touched(tmp_path: Path) -> None:
    """Changed files come, gone files go, and equal ones keep their inode and time."""
    kept = make(tmp_path / "kept", {"same": "1", "deep/same": "1", "changed": "1", "gone/x": "1"})
    before = {name: os.stat(kept / name) for name in ("same", "deep/same", "changed")}
    new = make(tmp_path / "new", {"same": "1", "deep/same": "1", "changed": "2", "come/y": "3"})
    sync_tree(new, kept)
    assert snapshot(kept) == {"same": "1", "deep/same": "1", "changed": "2", "come/y": "3"}
    for name in ("same", "deep/same"):
        now = os.stat(kept / name)
        assert (now.st_ino, now.st_mtime_ns) == (before[name].st_ino, before[name].st_mtime_ns)
    assert os.stat(kept / "changed").st_ino != before["changed"].st_ino


def test_modes_links_and_kinds_are_followed(tmp_path: Path) -> None:
    """A file that became executable, a link, or a directory is replaced by what it is now."""
    kept = make(tmp_path / "kept", {"run": "1", "link": "1", "file": "1", "folder/x": "1"})
    new = make(tmp_path / "new", {"run": "1", "file/x": "1", "folder": "1"})
    (new / "run").chmod(0o755)
    (new / "link").symlink_to("run")
    sync_tree(new, kept)
    assert os.access(kept / "run", os.X_OK)
    assert os.readlink(kept / "link") == "run"
    assert (kept / "file" / "x").read_text() == "1"
    assert (kept / "folder").read_text() == "1"


def test_a_link_is_never_followed(tmp_path: Path) -> None:
    """A link to a directory outside is removed as a link, and what it pointed to stays."""
    outside = make(tmp_path / "outside", {"precious": "1"})
    kept = make(tmp_path / "kept", {"a": "1"})
    (kept / "folder").symlink_to(outside)
    sync_tree(make(tmp_path / "new", {"folder/precious": "2"}), kept)
    assert snapshot(outside) == {"precious": "1"}
    assert snapshot(kept) == {"folder/precious": "2"}


def test_links_of_bazel_stay(tmp_path: Path) -> None:
    """Bazel's own links at the top survive, others of that name below do not."""
    kept = make(tmp_path / "kept", {"a": "1", "deep/b": "1"})
    (kept / "bazel-bin").symlink_to(tmp_path)
    (kept / "deep" / "bazel-bin").symlink_to(tmp_path)
    sync_tree(make(tmp_path / "new", {"a": "1", "deep/b": "1"}), kept)
    assert (kept / "bazel-bin").is_symlink()
    assert not (kept / "deep" / "bazel-bin").is_symlink()


def test_git_directory_is_replaced_whole(tmp_path: Path) -> None:
    """The .git of the new tree takes the place of the old one."""
    kept = make(tmp_path / "kept", {".git/HEAD": "1", ".git/old": "1"})
    sync_tree(make(tmp_path / "new", {".git/HEAD": "2"}), kept)
    assert snapshot(kept) == {".git/HEAD": "2"}


def test_slots_are_lent_once_and_reused(tmp_path: Path) -> None:
    """Two builds at once get two directories; the next one gets the first, still warm."""
    with slot(tmp_path, "tree") as one, slot(tmp_path, "tree") as two:
        assert one != two
        (one / "kept").touch()
    with slot(tmp_path, "tree") as again:
        assert (again / "kept").exists()


def test_remove_takes_read_only_directories(tmp_path: Path) -> None:
    """What a build made read-only can still be removed, and what is not there is fine."""
    root = make(tmp_path / "root", {"a/b/c": "1"})
    (root / "a" / "b").chmod(0o500)
    (root / "a").chmod(0o500)
    remove(root)
    remove(root)
    assert not root.exists()
