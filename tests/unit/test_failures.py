"""perfbisect.building.failures, on logs of builds that really failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfbisect.building.failures import TELLING_LINES, classify, patterns, read_log
from perfbisect.core.states import FailureKind

LOGS = Path(__file__).resolve().parents[1] / "data" / "build_logs"
OURS, PERMANENT, TRANSIENT = FailureKind.OURS, FailureKind.PERMANENT, FailureKind.TRANSIENT

#: (log, kind, part of the cause, part of the first telling line)
EXPECTED = [
    ("bash-no-match", PERMANENT, "matches made/**/*.so", "no match"),
    ("bazel-bad-attribute", PERMANENT, "no such attribute 'dep'", "core/BUILD:1:1"),
    ("bazel-checksum-changed", PERMANENT, "no longer the one it expects", "Checksum was b509"),
    ("bazel-compile-error", PERMANENT, "core/kernel.cc, line 4: 'valeu' was not", "kernel.cc:4:35"),
    ("bazel-connection-refused", TRANSIENT, "network", "Connection refused"),
    ("bazel-dead-url", PERMANENT, "gone from its address", "GET returned 404"),
    ("bazel-no-such-package", PERMANENT, "Bazel finds no cores", "no such package"),
    ("bazel-no-such-target", PERMANENT, "Bazel finds no //core:kernle", "no such target"),
    ("bazel-syntax-error", PERMANENT, "line 2: syntax error at 'newline'", "BUILD:2:1"),
    ("bazel-undefined-config", OURS, "option of the recipe: cuda", "Config value cuda"),
    ("bazel-unknown-host", TRANSIENT, "network", "Unknown host"),
    ("bazel-unknown-option", OURS, "--no_such_option", "Unrecognized option"),
    ("bazel-wrong-version", OURS, "this version of Bazel", "expected at least 0.29.1"),
    ("cp-no-space", TRANSIENT, "disk is full", "No space left"),
    ("curl-timed-out", TRANSIENT, "network", "Operation timed out"),
    ("curl-wrong-clock", TRANSIENT, "clock is wrong", "certificate is not yet valid"),
    ("docker-registry-refused", TRANSIENT, "network", "connection refused"),
    ("docker-registry-unknown-host", TRANSIENT, "network", "no such host"),
    ("gcc-compile-error", PERMANENT, "error.cc, line 4", "was not declared"),
    ("gcc-killed", TRANSIENT, "out of memory", "Killed signal terminated program"),
    ("gcc-missing-header", PERMANENT, "absl/strings/string_view.h is missing", "fatal error"),
    ("gcc-no-space", TRANSIENT, "disk is full", "No space left"),
    ("git-no-network", TRANSIENT, "network", "Could not resolve host"),
    ("ld-undefined-reference", PERMANENT, "link error: `missing(int)'", "undefined reference"),
    ("npm-unknown-host", TRANSIENT, "network", "ENOTFOUND"),
    ("pip-no-matching", PERMANENT, "as of the commit's date", "wheel==99.0"),
    ("pip-requires-python", PERMANENT, "another version of Python", "requires a different Python"),
    ("pip-unknown-host", TRANSIENT, "network", "Failed to establish a new connection"),
    ("sh-command-not-found", OURS, "not there: no-such-program", "no-such-program"),
    ("uv-compile-error", PERMANENT, "tiny.c, line 3", "tiny.c:3:60"),
    ("uv-connection-refused", TRANSIENT, "network", "error sending request"),
    ("uv-no-compiler", OURS, "no compiler", "No such file or directory: 'gcc'"),
    ("uv-no-solution", PERMANENT, "as of the commit's date", "No solution found"),
    ("uv-requirements-too-old", PERMANENT, "too old for this Python", "unescape"),
    ("uv-setup-error", PERMANENT, "No such file or directory: 'version.json'", "FileNotFoundError"),
    ("uv-unknown-host", TRANSIENT, "network", "error sending request"),
]


def log(name: str) -> str:
    return (LOGS / f"{name}.log").read_text("utf-8")


@pytest.mark.parametrize(("name", "kind", "cause", "line"), EXPECTED)
def test_real_logs(name: str, kind: FailureKind, cause: str, line: str) -> None:
    """Each real log gets its kind, its cause in one line, and starts with its telling line."""
    failure = classify(log(name))
    assert failure.kind is kind
    assert cause in failure.cause
    assert line in failure.lines[0]
    assert len(failure.lines) <= TELLING_LINES


def test_every_sample_is_expected_to_mean_something() -> None:
    """No log lies in the directory without being tested."""
    unknown = {"npm-no-such-version"}
    assert {path.stem for path in LOGS.glob("*.log")} == {row[0] for row in EXPECTED} | unknown


def test_unknown_failures_show_the_end_of_the_log() -> None:
    """Where nothing is known to tell, the caller's kind and summary and the last lines serve."""
    failure = classify(log("npm-no-such-version"), otherwise=OURS, summary="npm ended with 1")
    assert (failure.kind, failure.cause) == (OURS, "npm ended with 1")
    assert any("No matching version found" in line for line in failure.lines)


def test_network_without_permission_is_the_recipes_mistake() -> None:
    """A build in a container without network that wants one says which option to set."""
    failure = classify(log("bazel-unknown-host"), network_allowed=False)
    assert failure.kind is OURS
    assert failure.advice == "Set network = true in the recipe."


def test_a_script_that_the_tree_lacks_is_the_revisions_matter() -> None:
    """A missing program stops the search; a missing file of the tree skips the revision."""
    assert classify("sh: 1: cmake: not found\n").kind is OURS
    assert classify("sh: 1: tools/build.sh: not found\n").kind is PERMANENT
    assert classify("cat: version.txt: No such file or directory\n").kind is PERMANENT


def test_bazel_8_on_a_tree_of_workspace_times_is_the_recipes_matter() -> None:
    """What Bazel 8 says of a WORKSPACE that it passes over stops the search, and says what to do.

    The words are those of reports by others: none of our machines has that version.
    """
    failure = classify(
        "ERROR: Skipping '//core:kernel': no such package '@@[unknown repo 'zlib' requested from "
        "@@]//': The repository '@@[unknown repo 'zlib' requested from @@]' could not be resolved: "
        "No repository visible as '@zlib' from main repository. Was the repository introduced in "
        "WORKSPACE? The WORKSPACE file is disabled by default in Bazel 8 (late 2024) and will be "
        "removed in Bazel 9 (late 2025), please migrate to Bzlmod.\n"
    )
    assert failure.kind is OURS
    assert "--enable_workspace" in failure.advice


def test_infrastructure_comes_before_what_it_causes() -> None:
    """A full disk is told rather than the compile errors that follow from it."""
    failure = classify("x.cc:1:1: error: expected ;\ncc1plus: No space left on device\n")
    assert failure.kind is TRANSIENT


def test_the_table_is_sound() -> None:
    """Names are unique, every group that a cause names exists, and every entry can be reached."""
    table = patterns()
    assert len({entry.name for entry in table}) == len(table)
    for entry in table:
        groups = dict.fromkeys(entry.pattern.groupindex, "x")
        assert entry.cause.format_map(groups)


def test_long_lines_are_cut() -> None:
    """A line of a megabyte does not go into the failure whole."""
    failure = classify(f"x.cc:1:1: error: {'y' * 10**6}\n")
    assert len(failure.cause) <= 200
    assert max(map(len, failure.lines)) <= 400


def test_log_is_read_from_its_command_with_paths_of_the_tree(tmp_path: Path) -> None:
    """Only what the failed command printed counts, with files named from the root of the tree."""
    path = tmp_path / "log"
    path.write_text("old\n/build/src/core/a.cc:1:1: error: no\n")
    assert read_log(path, 4, root="/build/src") == "core/a.cc:1:1: error: no\n"


def test_only_the_end_of_a_huge_log_is_looked_at(tmp_path: Path) -> None:
    """A log of tens of megabytes does not cost minutes: its last ones are enough."""
    path = tmp_path / "log"
    path.write_text("a warning\n" * 1_000_000 + "x.cc:1:1: error: no\n")
    text = read_log(path, 0, root="/build/src")
    assert len(text) <= 4 * 1024 * 1024
    assert text.endswith("error: no\n")
