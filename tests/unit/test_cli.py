from __future__ import annotations

from pathlib import Path

import pytest
from tests.helpers.command_line import call

from perfbisect.addresses import is_loopback
from perfbisect.commands.demonstrate import truth_told
from perfbisect.commands.options import (
    make_request,
    make_settings,
    option_name,
    parse_switches,
)
from perfbisect.commands.remote import read_token
from perfbisect.commands.serving import listen, refuse_open_door
from perfbisect.commands.simulating import parse_steps
from perfbisect.core.access import Anonymous
from perfbisect.core.states import ChangeKind
from perfbisect.demo.repository import DemoRepository, KnownStep
from perfbisect.errors import BadInputError
from perfbisect.settings import Settings


def test_usage_errors_are_bad_input() -> None:
    """An unknown option, a missing one and an unknown command all end with exit code 2."""
    assert call(["bisect", "--nonsense"]).code == 2
    assert call(["bisect"]).code == 2
    assert call(["frobnicate"]).code == 2


def test_wrong_words_are_told_plainly() -> None:
    """A word that is none of those an option has is named, without the library's prefix."""
    arguments = ["bisect", "--repo=.", "--good=a", "--bad=b", "--recipe=r", "--benchmark=b"]
    ended = call([*arguments, "--find", "foo"])
    assert ended.code == 2
    assert "'--find': 'foo' is not one of 'first', 'all', 'fix'" in ended.err


def test_looking_what_would_go_makes_nothing(tmp_path: Path) -> None:
    """`gc --dry-run` on a directory that is not there says so, and leaves it so."""
    ended = call(["gc", "--dry-run", "--data-dir", str(tmp_path / "data")])
    assert (ended.code, ended.out) == (0, "would go: nothing\n")
    assert "is not there" in ended.err
    assert not (tmp_path / "data").exists()


def test_a_port_that_is_taken_is_bad_input(tmp_path: Path) -> None:
    """`serve` says that it serves only once it does; a port in use is told, and nothing is made."""
    with listen("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        ended = call(["serve", "--port", port, "--data-dir", str(tmp_path / "data")])
    assert ended.code == 2
    assert f"--port: 127.0.0.1:{port} can't be listened on" in ended.err
    assert "serves" not in ended.err + ended.out
    assert not (tmp_path / "data").exists()
    with pytest.raises(BadInputError, match=r"--bind: 192\.0\.2\.1:80"):
        listen("192.0.2.1", 8080)


def test_the_version_is_printed() -> None:
    """`--version` prints name and version, and succeeds."""
    ended = call(["--version"])
    assert ended.code == 0
    assert ended.out.startswith("perfbisect 0.")


def test_errors_leave_standard_output_empty(tmp_path: Path) -> None:
    """With --json a failing command prints nothing on standard output that could be parsed."""
    ended = call(["export", "01NOTHERE", "--data-dir", str(tmp_path), "--json"])
    assert (ended.code, ended.out) == (2, "")
    assert "perfbisect: no bisection" in ended.err


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--confidence", "1.5", "--confidence"),
        ("--max-runs", "0", "--max-runs"),
        ("--probe", "-1", "--probe"),
        ("--find", "some", "--find"),
        ("--engine", "cloud", "'local'"),
    ],
)
def test_wrong_options_name_themselves(option: str, value: str, words: str, tmp_path: Path) -> None:
    """An option that can't be right is refused with its name, before anything is stored."""
    arguments = ["bisect", "--repo=.", "--good=a", "--bad=b", "--recipe=r", "--benchmark=b"]
    ended = call([*arguments, f"--data-dir={tmp_path / 'data'}", option, value])
    assert ended.code == 2
    assert words in ended.err
    assert not (tmp_path / "data").exists()


def test_fields_and_options_have_the_same_names() -> None:
    """A message about a field of the request names the option that people typed."""
    assert option_name("repository") == "--repo"
    assert option_name("min_effect") == "--min-effect"
    with pytest.raises(BadInputError, match="--good") as caught:
        make_request(repository="r", good="", bad="b", recipe="r", benchmark="b")
    assert caught.value.field == "--good"


def test_settings_name_their_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong variable of the environment is named in the message."""
    monkeypatch.setenv("PERFBISECT_PORT", "many")
    with pytest.raises(BadInputError, match="PERFBISECT_PORT"):
        make_settings()


def test_options_win_over_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is given on the command line overrides the environment; what is not, does not."""
    monkeypatch.setenv("PERFBISECT_PORT", "1234")
    monkeypatch.setenv("PERFBISECT_DATA_DIR", "/elsewhere")
    settings = make_settings(data_dir=tmp_path, port=None)
    assert (settings.port, settings.data_dir) == (1234, tmp_path)


@pytest.mark.parametrize("bind", ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost"])
def test_loopback_needs_no_permission(tmp_path: Path, bind: str) -> None:
    """Addresses that only this machine reaches are served without further ado."""
    assert is_loopback(bind)
    refuse_open_door(Settings(data_dir=tmp_path, bind=bind))


@pytest.mark.parametrize("bind", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])
def test_open_doors_are_refused(tmp_path: Path, bind: str) -> None:
    """Any other address is refused while nobody could log in, unless that is asked for."""
    with pytest.raises(BadInputError, match="--no-auth"):
        refuse_open_door(Settings(data_dir=tmp_path, bind=bind))
    refuse_open_door(Settings(data_dir=tmp_path, bind=bind, anonymous=Anonymous.SUBMIT))


def test_serve_refuses_before_it_opens_anything(tmp_path: Path) -> None:
    """`serve` on an open address ends with exit code 2 and leaves no database behind."""
    ended = call(["serve", "--bind", "0.0.0.0", "--data-dir", str(tmp_path / "data")])
    assert ended.code == 2
    assert not (tmp_path / "data").exists()


def test_steps_of_a_simulation() -> None:
    """Changes are signed percentages of any size; 0% is none."""
    assert parse_steps(["-10%", "+200%", "5 %", "0%"], 10) == (-0.1, 2.0, 0.05)


@pytest.mark.parametrize("text", ["-100%", "-250%", "10", "fast", "", "--5%", "nan%"])
def test_wrong_steps_of_a_simulation(text: str) -> None:
    """What is no change, or leaves nothing, is refused with the value."""
    with pytest.raises(BadInputError, match="--step") as caught:
        parse_steps([text], 10)
    assert caught.value.value == text


def test_simulate_is_reproducible() -> None:
    """The same seed gives the same answer, in JSON, whatever the number of processes."""
    arguments = ["simulate", "--commits=16", "--step=-30%", "--trials=4", "--seed=3", "--json"]
    one, two = call([*arguments, "--jobs=1"]), call([*arguments, "--jobs=2"])
    assert one.code == 0
    assert one.json == two.json
    assert one.json["estimate"]["trials"] == 4
    assert one.json["estimate"]["exact"] == 1.0


def test_a_database_that_is_not_there_is_not_created_by_a_check(tmp_path: Path) -> None:
    """`db check` only looks; `db upgrade` creates, and then the check succeeds."""
    option = f"--data-dir={tmp_path / 'data'}"
    ended = call(["db", "check", option])
    assert ended.code == 2
    assert "perfbisect db upgrade" in ended.err
    assert not (tmp_path / "data").exists()
    assert call(["db", "upgrade", option, "--json"]).json["schema"] == "current"
    assert call(["db", "check", option]).code == 0


def test_a_wrong_database_url(tmp_path: Path) -> None:
    """A URL of no database is bad input, and a password in it is not repeated."""
    ended = call(["db", "upgrade", "--database-url", "nonsense://user:secret@host/x"])
    assert ended.code == 2
    assert "--database-url" in ended.err
    assert "secret" not in ended.err


def test_tokens_come_from_a_file_or_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A token file wins over the variable; a file that can't be right is named."""
    monkeypatch.setenv("PERFBISECT_TOKEN", " from-variable\n")
    file = tmp_path / "token"
    file.write_text("from-file\n")
    assert read_token(None) == "from-variable"
    assert read_token(file) == "from-file"
    file.write_text("\n")
    for wrong in (file, tmp_path / "none", tmp_path):
        with pytest.raises(BadInputError, match="--token-file"):
            read_token(wrong)


def test_a_wrong_server_is_bad_input() -> None:
    """A server that is no URL is refused with the option's name."""
    ended = call(["status", "--server", "not a url"])
    assert ended.code == 2
    assert "--server" in ended.err


def demo_repository() -> DemoRepository:
    steps = (
        KnownStep("c" * 40, "b" * 40, "Slow", ChangeKind.REGRESSION, -0.5),
        KnownStep("e" * 40, "d" * 40, "Fast", ChangeKind.RECOVERY, 0.5),
    )
    return DemoRepository(Path("/demo"), "a" * 40, "f" * 40, steps, (), ())


def test_the_demo_compares_with_the_truth() -> None:
    """A step counts as found when its commit is among a culprit's; anything else is wrong."""
    found = [{"commits": ["c" * 40]}, {"commits": ["d" * 40, "e" * 40]}]
    told = truth_told(demo_repository(), {"culprits": found})
    assert told["as_expected"] is True
    told = truth_told(demo_repository(), {"culprits": found[:1]})
    assert [step["found"] for step in told["steps"]] == [True, False]
    assert told["as_expected"] is False
    told = truth_told(demo_repository(), {"culprits": [*found, {"commits": ["9" * 40]}]})
    assert told["wrong"] == [["9" * 40]]
    assert told["as_expected"] is False


def test_a_data_directory_that_is_a_file_is_bad_input(tmp_path: Path) -> None:
    """A data directory that can't be used ends with exit code 2 and its path, not a traceback."""
    file = tmp_path / "file"
    file.write_text("mine")
    ended = call(["export", "01NOTHERE", "--data-dir", str(file)])
    assert (ended.code, ended.out) == (2, "")
    assert f"data_dir: '{file}' can't be used" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("name", ["a b/c", "../x", "-x", "a" * 101])
def test_names_of_hosts_are_checked(name: str) -> None:
    """A host's name that can't be one is bad input, and says what one looks like."""
    with pytest.raises(BadInputError, match="letters, digits"):
        make_settings(host_name=name)
    assert make_settings(host_name="gpu-17.example_a").host_name == "gpu-17.example_a"


@pytest.mark.parametrize(
    ("text", "switches"), [(["xla=on", "cuda=off"], {"xla": True, "cuda": False}), (None, {})]
)
def test_switches_of_recipes(text: list[str] | None, switches: dict[str, bool]) -> None:
    """Options of a recipe are turned on and off by name; anything else is bad input."""
    assert parse_switches(text) == switches
    for wrong in ("xla", "xla=yes", "speed=on", "=on"):
        with pytest.raises(BadInputError, match="--recipe-option"):
            parse_switches([wrong])


def test_a_patch_that_is_not_there_is_named_without_codes(tmp_path: Path) -> None:
    """A missing patch file is bad input in words, without the system's error number."""
    ended = call(
        ["try", "--repo", ".", "--recipe", "pip-wheel", "--benchmark", "import-time", "--base", "a",
         "--patch", str(tmp_path / "none.patch"), "--data-dir", str(tmp_path / "data")]
    )  # fmt: skip
    assert ended.code == 2
    assert "there is no such file" in ended.err
    assert "Errno" not in ended.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["export", "x", "--data-dir", ""],
        ["gc", "--data-dir", ""],
        ["demo", "--data-dir", ""],
        ["fetch-archives", "--repo", ".", "--good", "a", "--bad", "b", "--distdir", ""],
        ["db", "upgrade", "--database-url", ""],
        ["nightly", "run", "x", "--host", ""],
        ["serve", "--bind", ""],
    ],
    ids=lambda arguments: " ".join(arguments[:1] + arguments[-2:-1]),
)
def test_empty_options_are_bad_input(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A place or name that is empty is refused, rather than taken for the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERFBISECT_DATA_DIR", str(tmp_path / "data"))
    ended = call(arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"perfbisect: {arguments[-2]}: '' is empty")
    assert list(tmp_path.iterdir()) == []


def test_empty_variables_count_as_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A variable that is set to nothing leaves the default, whatever its type."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("DATA_DIR", "DISTDIR", "PORT", "ALLOWED_HOSTS"):
        monkeypatch.setenv(f"PERFBISECT_{name}", "")
    settings = make_settings()
    assert settings.data_dir == tmp_path / ".local" / "share" / "perfbisect"
    assert (settings.distdir, settings.port, settings.allowed_hosts) == (None, 8080, [])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["token", "create", "x", "--expires", "99999999d"], "--expires: '99999999d'"),
        (["token", "create", "x", "--rate-limit", "0/minute"], "--rate-limit: a limit looks like"),
        (["alert", "--series", "x", "--before", "nan"], "--before: nan is not a level"),
        (["alert", "--series", "x", "--after", "inf"], "--after: inf is not a level"),
        (["nightly", "import", "none.csv"], "none.csv: can't be read: No such file or directory"),
        (["nightly", "import", "."], "can't be read: Is a directory"),
        (["nightly", "import", "bytes"], "can't be read: it is not UTF-8 text"),
        (["db", "check", "--database-url", "mssql+pymssql://h/x"], "'pymssql'"),
        (
            ["fetch-archives", "--repo", ".", "--good", "a", "--bad", "b", "--distdir", "bytes"],
            "--distdir: 'bytes' is a file; give a directory",
        ),
    ],
)
def test_values_beyond_all_bounds_are_bad_input(
    arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What no calendar, driver or file has is told in one line with its option."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERFBISECT_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    ended = call(arguments)
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err
    assert len(ended.err.splitlines()) == 1


def test_doctor_sees_that_a_data_directory_is_a_file(tmp_path: Path) -> None:
    """What no command could use is missing, for the directory itself and for one above it."""
    file = tmp_path / "file"
    file.write_text("mine")
    for place in (file, file / "below"):
        ended = call(["doctor", "--json", "--data-dir", str(place)])
        disk = next(each for each in ended.json["checks"] if each["name"] == "disk")
        assert (ended.code, disk["status"]) == (1, "missing")
        assert "--data-dir" in disk["advice"]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--base", ""),
        ("--revert", ""),
        ("--pick", ""),
        ("--patch", "nothing.patch"),
        ("--arm", "''"),
        ("--arm", "t1 revert ''"),
        ("--against", ""),
    ],
)
def test_arms_without_content_are_bad_input(
    option: str, value: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An empty revision or patch is told with its option, and nothing is begun."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nothing.patch").touch()
    what = ["--repo=.", "--recipe=pip-wheel", "--benchmark=import-time", "--data-dir=data"]
    ended = call(["try", *what, "--base", "main", option, value])
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"perfbisect: {option}: ")
    assert len(ended.err.splitlines()) == 1
    assert not (tmp_path / "data").exists()


def test_serve_tells_in_a_line_what_it_can_not_use(tmp_path: Path) -> None:
    """A data directory or database that can't be used ends `serve` before it says it serves."""
    file = tmp_path / "file"
    file.write_text("mine, and no database " * 100)
    for option in ("--data-dir", str(file)), ("--database-url", f"sqlite:///{file}"):
        ended = call(["serve", "--data-dir", str(tmp_path / "data"), *option])
        assert ended.code == 2
        assert "can't be used" in ended.err
        assert len(ended.err.splitlines()) == 1
