"""The shipped benchmarks for GPUs: their command at each age of their companions."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.helpers.repositories import Workshop

from perfbisect.companions import Companions
from perfbisect.config import load_benchmark
from perfbisect.core.readers import read_metric
from perfbisect.definitions import Measured
from perfbisect.services import Services
from perfbisect.settings import Settings

SAMPLES = Path(__file__).parents[1] / "data" / "readers"
#: Moment of a commit of the model garden -> where its ResNet was.
AGES = {
    "2019-07-31": "models/official/resnet/keras/keras_imagenet_main.py",
    "2019-08-18": "models/official/resnet/keras/keras_imagenet_main.py",
    "2019-08-19": "models/official/vision/image_classification/resnet_imagenet_main.py",
    "2020-03-16": "models/official/vision/image_classification/resnet/resnet_imagenet_main.py",
    "2020-04-18": "models/official/vision/image_classification/resnet/resnet_ctl_imagenet_main.py",
}


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    opened = Services.open(Settings(data_dir=tmp_path / "data"))
    yield opened
    opened.close()


def test_the_resnet_follows_its_moves(services: Services, tmp_path: Path) -> None:
    """At each age the command is that age's, with the flags of the report throughout."""
    garden = Workshop(tmp_path / "garden")
    commits = {}
    for day in AGES:
        garden.wait_until(datetime.fromisoformat(day).replace(hour=12, tzinfo=UTC))
        commits[day] = garden.commit(day)
    benchmark = load_benchmark("resnet50-xla-8gpu-fp16").benchmark
    (companion,) = benchmark.companions
    digests = set()
    for day, path in AGES.items():
        here = replace(companion, repository=str(garden.path), revision=commits[day])
        measured = Measured(replace(benchmark, companions=(here,)), {}, {})
        companions = Companions(services, measured.benchmark, allow_local=True)
        resolved = companions.resolved(measured, companions.commits_at(None))
        words = shlex.split(resolved.benchmark.command)
        assert words[:2] == ["{python}", path]
        wanted = "--bs=2048 --dtype=fp16 --enable_xla --ng=8 --pgtc=2 --gt_mode=gpu_private"
        assert set(wanted.split()) <= set(words)
        assert ("--use_tensor_lr" in words) is (day < "2020-04-17")
        assert resolved.benchmark.when == ()
        digests.add(resolved.benchmark_digest)
    assert len(digests) == len(AGES)


@pytest.mark.parametrize("sample", ["benchmark-metric.log", "keras-time-history.log"])
def test_both_formats_of_the_garden_are_read(sample: str) -> None:
    """The pattern reads what the two readers of the garden's formats read."""
    metric = load_benchmark("resnet50-xla-8gpu-fp16").benchmark.metric
    reader = {"benchmark-metric.log": "benchmark-metric"}.get(sample, "keras-time-history")
    text = (SAMPLES / sample).read_text()
    own = replace(metric, reader=type(metric.reader)(reader), pattern="", skip=0)
    assert read_metric(metric, text, {}).values == read_metric(own, text, {}).values


def test_perfzero_takes_its_method_from_a_variable() -> None:
    """The shell fills it in; nothing is uploaded, and both companions are pinned."""
    benchmark = load_benchmark("perfzero").benchmark
    shell, option, script = shlex.split(benchmark.command)
    assert (shell, option) == ("sh", "-c")
    assert '--benchmark_methods="$PERFZERO_METHOD"' in script
    assert "--gcloud_key_file_url= " in script
    assert benchmark.env["PERFZERO_METHOD"].endswith(".benchmark_xla_8_gpu_fp16")
    assert [each.name for each in benchmark.companions] == ["benchmarks", "models"]
    assert not any(each.moving for each in benchmark.companions)
