from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfbisect.core.readers import (
    MAX_CHARACTERS,
    Reading,
    ReadingError,
    metric_problem,
    read_metric,
)
from perfbisect.core.recipe import Metric, ReaderKind, Take

SAMPLES = Path(__file__).parent.parent / "data" / "readers"


def sample(name: str) -> str:
    return (SAMPLES / name).read_text(encoding="utf-8")


def read(metric: Metric, text: str) -> Reading:
    """Read from the output, or from the file if the metric names one."""
    return read_metric(metric, "" if metric.file else text, {metric.file: text})


def test_every_reader_is_built() -> None:
    """Each named reader answers to text that isn't its own with an error, not a crash."""
    for kind in ReaderKind:
        metric = Metric(reader=kind, pattern="(x)" if kind is ReaderKind.REGEX else "", path="v")
        with pytest.raises(ReadingError):
            read_metric(metric, "nothing to see\n", {})


# ------------------------------------------------------------------------------ regex


def test_regex_takes_each_match_as_a_value() -> None:
    """Lines may be anchored; the median is taken unless something else is asked for."""
    text = "images/sec: 3\nnot images/sec: 100\nimages/sec: 1.5e1\nimages/sec: 7\n"
    reading = read(Metric(pattern=r"^images/sec: (\S+)$"), text)
    assert reading.values == (3.0, 15.0, 7.0)
    assert reading.value == 7.0


@pytest.mark.parametrize(
    ("take", "value"),
    [(Take.MEDIAN, 6.0), (Take.MEAN, 6.5), (Take.MIN, 3.0), (Take.MAX, 11.0), (Take.LAST, 5.0)],
)
def test_take(take: Take, value: float) -> None:
    """Each way to take one value of several, after warm-up is dropped."""
    text = "v=100 v=3 v=7 v=11 v=5"
    assert read(Metric(pattern=r"v=(\d+)", take=take, skip=1), text).value == value


def test_named_group() -> None:
    """A group named ``value`` is the value, whichever others there are."""
    assert read(Metric(pattern=r"(step) (?P<value>\d+)"), "step 4").value == 4.0


def test_pattern_that_never_matches() -> None:
    """The message names the pattern and where it was looked for."""
    with pytest.raises(ReadingError, match=r"'images: \(.\*\)' matches nothing in the output"):
        read(Metric(pattern="images: (.*)"), "img: 3")
    with pytest.raises(ReadingError, match=r"matches nothing in 'out.txt'"):
        read(Metric(pattern="images: (.*)", file="out.txt"), "img: 3")


def test_too_few_values_for_the_warm_up() -> None:
    """When warm-up leaves nothing, the message says how many there were."""
    with pytest.raises(ReadingError, match="2 values were read and 2 dropped"):
        read(Metric(pattern=r"v=(\d+)", skip=2), "v=1 v=2")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("nan", "reported nan, which is not a finite number"),
        ("inf", "not a finite number"),
        ("-Infinity", "not a finite number"),
        ("1e999", "not a finite number"),
        ("1e200", "which is no measure of anything"),
        ("1e-200", "which is no measure of anything"),
        ("0.0", "reported 0, which is zero"),
        ("-3", "reported -3, which is negative"),
        ("fast", "'fast', which is not a number"),
        ("", "'', which is not a number"),
        ("1,234", "'1,234', which is not a number"),
    ],
)
def test_values_that_measure_nothing(value: str, says: str) -> None:
    """NaN, infinity, zero and negative values are refused, even where others are fine."""
    with pytest.raises(ReadingError, match=says) as caught:
        read(Metric(pattern=r"v=(.*)$", take=Take.MAX), f"v=5\nv={value}\nv=6")
    assert caught.value.advice
    assert not caught.value.benchmark_failed


def test_a_bad_value_in_the_warm_up_does_no_harm() -> None:
    """What is dropped as warm-up may be anything numeric."""
    assert read(Metric(pattern=r"v=(.*)$", skip=1), "v=nan\nv=5").value == 5.0


def test_only_the_end_of_a_long_output_is_read() -> None:
    """A log beyond the limit is read from a whole line near its end on."""
    text = "v=1\n" + "x" * MAX_CHARACTERS + "\nv=2\n"
    assert read(Metric(pattern=r"v=(\d+)"), text).values == (2.0,)


# ------------------------------------------------------------------------------- json


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("a.b", (3.0,)),
        ("list", (1.0, 2.0)),
        ("list.1", (2.0,)),
        ("runs.*.v", (5.0, 6.0)),
        ("by_name.*.v", (7.0, 8.0)),
        ("text", (9.5,)),
    ],
)
def test_json_paths(path: str, values: tuple[float, ...]) -> None:
    """Dotted paths go through objects and lists, and ``*`` through all of either."""
    document = {
        "a": {"b": 3},
        "list": [1, 2],
        "runs": [{"v": 5}, {"v": 6}],
        "by_name": {"x": {"v": 7}, "y": {"v": 8}},
        "text": "9.5",
    }
    metric = Metric(reader=ReaderKind.JSON, path=path)
    assert read(metric, json.dumps(document, indent=1)).values == values


def test_json_is_the_last_line_of_an_output() -> None:
    """A program that logs first may print its JSON as one line at the end."""
    text = 'loading…\n{"v": 1}\n{broken\n{"v": 2}\ndone\n'
    assert read(Metric(reader=ReaderKind.JSON, path="v"), text).value == 2.0


@pytest.mark.parametrize(
    ("path", "says", "advice"),
    [
        ("a.c", "nothing at 'c' of path 'a.c'", "known there: b"),
        ("list.7", "nothing at '7'", "a list of 2"),
        ("a.b.c", "nothing at 'c'", "found there: 3"),
        ("flag", "True, which is not a number", "a number like"),
        ("empty", "0 values were read", "run more steps"),
    ],
)
def test_json_without_the_value(path: str, says: str, advice: str) -> None:
    """The message says where the path ends, the advice what is there."""
    text = '{"a": {"b": 3}, "list": [1, 2], "flag": true, "empty": []}'
    with pytest.raises(ReadingError, match=says) as caught:
        read(Metric(reader=ReaderKind.JSON, path=path), text)
    assert advice in caught.value.advice


def test_no_json_at_all() -> None:
    """Text without JSON is said to be so."""
    with pytest.raises(ReadingError, match="is JSON"):
        read(Metric(reader=ReaderKind.JSON, path="v"), "v: 3\n")


def test_deeply_nested_json_is_an_error() -> None:
    """A document that nests beyond reason is refused, not a crash."""
    with pytest.raises(ReadingError):
        read(Metric(reader=ReaderKind.JSON, path="v"), "[" * 200_000)


def test_missing_file() -> None:
    """A file that the benchmark did not write is named, with those that it did."""
    metric = Metric(reader=ReaderKind.JSON, path="v", file="out.json")
    with pytest.raises(ReadingError, match=r"did not write 'out\.json'") as caught:
        read_metric(metric, '{"v": 1}', {"other.json": ""})
    assert "other.json" in caught.value.advice


# ------------------------------------------------------------------- TensorFlow's tools


def test_perfzero_log_and_file() -> None:
    """Throughput is the metric ``exp_per_second``, in the log as in the summary file."""
    metric = Metric(reader=ReaderKind.PERFZERO)
    assert read(metric, sample("perfzero.log")).value == 2843.7120441
    metric = Metric(reader=ReaderKind.PERFZERO, file="perfzero_summary.json")
    assert read(metric, sample("perfzero_summary.json")).value == 2843.7120441


@pytest.mark.parametrize(
    ("path", "value"), [("avg_exp_per_second", 2764.31), ("wall_time", 497.30216884613037)]
)
def test_other_metrics_of_perfzero(path: str, value: float) -> None:
    """Any metric of the summary can be named, its wall time too."""
    metric = Metric(reader=ReaderKind.PERFZERO, path=path)
    assert read(metric, sample("perfzero.log")).value == value


def test_perfzero_reports_a_failure() -> None:
    """A wall time of -1 means that the method failed: the benchmark's fault, not the metric's."""
    with pytest.raises(ReadingError, match=r"benchmark_xla_8_gpu_fp16 failed") as caught:
        read(Metric(reader=ReaderKind.PERFZERO), sample("perfzero-failed.log"))
    assert caught.value.benchmark_failed


def test_perfzero_without_the_metric() -> None:
    """A metric that isn't in the summary is answered with the nearest and all others."""
    with pytest.raises(ReadingError, match="did you mean 'exp_per_second'") as caught:
        read(Metric(reader=ReaderKind.PERFZERO, path="exp_per_sec"), sample("perfzero.log"))
    assert "accuracy_top_1, exp_per_second" in caught.value.advice


def test_perfzero_with_two_methods_or_cut_short() -> None:
    """Two summaries can't be one value, and half a summary is none."""
    log = sample("perfzero.log")
    with pytest.raises(ReadingError, match="ran 2 methods"):
        read(Metric(reader=ReaderKind.PERFZERO), log + log.replace("benchmark_xla", "benchmark"))
    with pytest.raises(ReadingError, match="cut short"):
        read(Metric(reader=ReaderKind.PERFZERO), log[: log.index("exp_per_second")])
    with pytest.raises(ReadingError, match="no PerfZero summary"):
        read(Metric(reader=ReaderKind.PERFZERO), '{"v": 1}')


def test_what_perfzero_really_wrote() -> None:
    """It logs every line twice, summaries too; the log says what the file says."""
    log = read(Metric(reader=ReaderKind.PERFZERO), sample("perfzero-cpu.log"))
    metric = Metric(reader=ReaderKind.PERFZERO, file="perfzero_summary.json")
    assert log.value == read(metric, sample("perfzero-cpu-summary.json")).value == 1353.75300063459
    with pytest.raises(ReadingError, match=r"TinyBenchmark.benchmark_fails failed") as caught:
        read(Metric(reader=ReaderKind.PERFZERO), sample("perfzero-cpu-failed.log"))
    assert caught.value.benchmark_failed


def test_benchmark_metric() -> None:
    """Each interval's throughput, without the first, and without the lines of epochs."""
    reading = read(Metric(reader=ReaderKind.BENCHMARK_METRIC), sample("benchmark-metric.log"))
    assert reading.values == (8948.487118, 8950.46599, 8907.86415)
    assert reading.value == 8948.487118
    older = read(Metric(reader=ReaderKind.BENCHMARK_METRIC), sample("benchmark-metric-2018.log"))
    assert older.values == (800.0, 819.2)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("keras-time-history.log", (8391.2, 8432.06, 8366.52)),
        ("keras-time-history-short.log", (30.25, 31.75)),
    ],
)
def test_keras_time_history(name: str, values: tuple[float, ...]) -> None:
    """Both forms are read, without the interval that holds tracing and compilation."""
    assert read(Metric(reader=ReaderKind.KERAS_TIME_HISTORY), sample(name)).values == values


def test_one_interval_is_all_warm_up() -> None:
    """A run too short to leave its warm-up is refused rather than measured wrong."""
    line = sample("keras-time-history.log").splitlines()[0]
    with pytest.raises(ReadingError, match="1 values were read and 1 dropped"):
        read(Metric(reader=ReaderKind.KERAS_TIME_HISTORY), line)


def test_tf_cnn_benchmarks() -> None:
    """The total is the value; the running means of steps are kept beside it."""
    reading = read(Metric(reader=ReaderKind.TF_CNN_BENCHMARKS), sample("tf-cnn-benchmarks.log"))
    assert reading.value == 357.53
    assert reading.values == (360.2, 358.9, 358.1, 357.8)


def test_what_tf_cnn_benchmarks_really_wrote() -> None:
    """The total is the value; the seven running means are kept beside it."""
    reading = read(Metric(reader=ReaderKind.TF_CNN_BENCHMARKS), sample("tf-cnn-benchmarks-cpu.log"))
    assert reading.value == 119.16
    assert reading.values == (40.2, 82.0, 66.6, 81.3, 94.5, 104.5, 119.6)


def test_tf_cnn_benchmarks_without_its_total() -> None:
    """A run that ended early has no total, and so no value."""
    text = sample("tf-cnn-benchmarks.log").replace("total images", "images")
    with pytest.raises(ReadingError, match="total images/sec"):
        read(Metric(reader=ReaderKind.TF_CNN_BENCHMARKS), text)


def test_a_nan_of_a_tool_is_seen() -> None:
    """A throughput that the tool prints as nan is reported, not passed over."""
    text = sample("tf-cnn-benchmarks.log").replace("357.53", "nan")
    with pytest.raises(ReadingError, match="not a finite number"):
        read(Metric(reader=ReaderKind.TF_CNN_BENCHMARKS), text)


def test_what_time_history_really_wrote() -> None:
    """Five intervals of the model garden's callback; the first, with tracing, is dropped."""
    reading = read(
        Metric(reader=ReaderKind.KERAS_TIME_HISTORY), sample("keras-time-history-cpu.log")
    )
    assert reading.values == (1938.52, 1942.59, 17046.12, 26290.65)


def test_orbit() -> None:
    """A step that is both logged and printed counts once; evaluation is no training."""
    reading = read(Metric(reader=ReaderKind.ORBIT), sample("orbit.log"))
    assert reading.values == (3.2, 3.1)
    assert reading.resolution == 0.1


def test_what_orbit_really_wrote() -> None:
    """Five inner loops, each logged and printed; the first, with tracing, is dropped."""
    reading = read(Metric(reader=ReaderKind.ORBIT), sample("orbit-cpu.log"))
    assert reading.values == (5614.3, 8719.9, 9609.5, 13471.8)


def test_orbit_below_its_resolution() -> None:
    """Less than one step in twenty seconds shows as 0.0, and the message says why."""
    text = sample("orbit.log").replace("3.2", "0.0")
    with pytest.raises(ReadingError) as caught:
        read(Metric(reader=ReaderKind.ORBIT), text)
    assert "no less than 0.1" in caught.value.advice


# ------------------------------------------------------------------- pytest-benchmark


def pytest_metric(path: str = "", take: Take = Take.MEDIAN, skip: int = 0) -> Metric:
    return Metric(
        reader=ReaderKind.PYTEST_BENCHMARK, path=path, file="b.json", take=take, skip=skip
    )


@pytest.mark.parametrize("path", ["test_sorted[100]", "test_b.py::test_sorted[100]"])
def test_pytest_benchmark_rounds(path: str) -> None:
    """A test is named by its short or full name; its rounds are the series."""
    tests = json.loads(sample("pytest-benchmark.json"))["benchmarks"]
    stats = next(test["stats"] for test in tests if test["name"] == "test_sorted[100]")
    reading = read(pytest_metric(path), sample("pytest-benchmark.json"))
    assert reading.values == tuple(stats["data"])
    assert reading.value == stats["median"]
    fastest = read(pytest_metric(path, Take.MIN, skip=1), sample("pytest-benchmark.json"))
    assert fastest.value == min(stats["data"][1:])


def test_pytest_benchmark_without_rounds() -> None:
    """Where rounds were not saved, the statistic asked for is the value, if there is one."""
    text = sample("pytest-benchmark-saved.json")
    tests = json.loads(text)["benchmarks"]
    stats = next(test["stats"] for test in tests if test["name"] == "test_sum")
    assert read(pytest_metric("test_sum", Take.MIN), text).value == stats["min"]
    with pytest.raises(ReadingError) as caught:
        read(pytest_metric("test_sum", skip=1), text)
    assert "--benchmark-save-data" in caught.value.advice


def test_pytest_benchmark_of_several_tests() -> None:
    """A file with several tests needs a name, and a wrong name is answered with the nearest."""
    text = sample("pytest-benchmark.json")
    with pytest.raises(ReadingError, match="holds 3 tests"):
        read(pytest_metric(), text)
    with pytest.raises(ReadingError, match=r"no tests are named.*did you mean 'test_b.py::test_s"):
        read(pytest_metric("test_b.py::test_som"), text)
    with pytest.raises(ReadingError, match="none of pytest-benchmark"):
        read(pytest_metric(), "{}")


# ------------------------------------------------------------------------- properties


@given(
    st.lists(st.floats(min_value=1e-9, max_value=1e12), min_size=1, max_size=30),
    st.integers(min_value=0, max_value=5),
    st.sampled_from(list(Take)),
)
def test_printed_values_are_read_back(values: list[float], skip: int, take: Take) -> None:
    """Whatever positive numbers a program prints, the series is the rest after warm-up."""
    text = "".join(f"step: {value!r} img/s\n" for value in values)
    metric = Metric(pattern=r"^step: (\S+) img/s$", skip=skip, take=take)
    if skip >= len(values):
        with pytest.raises(ReadingError, match="none left"):
            read(metric, text)
    else:
        reading = read(metric, text)
        assert reading.values == tuple(values[skip:])
        assert min(values[skip:]) * 0.999 <= reading.value <= max(values[skip:]) * 1.001


@given(st.text(max_size=300), st.sampled_from([k for k in ReaderKind if k is not ReaderKind.REGEX]))
def test_no_text_crashes_a_reader(text: str, kind: ReaderKind) -> None:
    """Any text gives a positive value or a `ReadingError`."""
    try:
        reading = read(Metric(reader=kind, path="v", file="f"), text)
    except ReadingError:
        return
    assert reading.value > 0


def test_metric_problems() -> None:
    """What can't be right is found without any output."""
    assert metric_problem(Metric(pattern="(x)")) is None
    assert metric_problem(Metric(reader=ReaderKind.PERFZERO)) is None
    assert metric_problem(Metric(reader=ReaderKind.PERFZERO, path="wall_time")) is None
    for metric, key in (
        (Metric(), "pattern"),
        (Metric(pattern="(x"), "pattern"),
        (Metric(pattern="x"), "pattern"),
        (Metric(pattern="(?P<other>x)(y)"), "pattern"),
        (Metric(pattern="(x)", path="a"), "path"),
        (Metric(reader=ReaderKind.ORBIT, pattern="(x)"), "pattern"),
        (Metric(reader=ReaderKind.ORBIT, path="x"), "path"),
        (Metric(reader=ReaderKind.JSON), "path"),
        (Metric(reader=ReaderKind.PYTEST_BENCHMARK), "file"),
    ):
        problem = metric_problem(metric)
        assert problem is not None
        assert problem[0] == key


# -------------------------------------------------------------------- what is counted in files

COPIES = Metric(reader=ReaderKind.ARTIFACT_COUNT, file="dump/*.pbtxt", pattern="GpuToHost")


def test_matches_in_all_files_are_counted_plus_one() -> None:
    """Two files with three copies give 4; none at all gives 1, which is a value like others."""
    files = {"dump/a.pbtxt": "GpuToHost x GpuToHost\n", "dump/b.pbtxt": "y GpuToHost_3"}
    reading = read_metric(COPIES, "", files)
    assert (reading.value, reading.values, reading.resolution) == (4.0, (4.0,), 1.0)
    assert read_metric(COPIES, "GpuToHost", {"dump/a.pbtxt": "HostToGpu"}).value == 1.0


def test_no_file_to_count_in_is_an_error() -> None:
    """A benchmark that dumped nothing did not do without copies."""
    with pytest.raises(ReadingError, match=r"left no file that 'dump/\*.pbtxt' fits"):
        read_metric(COPIES, "GpuToHost", {})


@pytest.mark.parametrize(
    ("changes", "key"),
    [({"file": ""}, "file"), ({"pattern": ""}, "pattern"), ({"pattern": "("}, "pattern"),
     ({"path": "a"}, "path"), ({"skip": 1}, "skip")],
)  # fmt: skip
def test_what_a_count_needs(changes: dict[str, object], key: str) -> None:
    """Files and a pattern, and nothing that belongs to other readers."""
    assert metric_problem(COPIES) is None
    problem = metric_problem(replace(COPIES, **changes))  # type: ignore[arg-type]
    assert problem is not None
    assert problem[0] == key
