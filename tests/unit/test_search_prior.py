"""What a commit touches decides how likely it is, and never that it can't be."""

from __future__ import annotations

import pytest

from perfbisect.core.prior import LEAST, path_weights


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["README.md"], 0.02),
        (["src/lib/fast.cc"], 1.0),
        (["docs/guide/index.rst", "src/core.py"], 1.0),
        (["tests/unit/test_core.py"], 0.04),
        (["pkg/core_test.go"], 0.04),
        (["a/b/tests/data.bin"], 0.04),
        (["CMakeLists.txt"], 1.0),
        ([], LEAST),
        (None, 1.0),
    ],
)
def test_general_paths(paths: list[str] | None, expected: float) -> None:
    """A commit weighs as much as the weightiest path it touches."""
    assert path_weights([paths])[0] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("path", "low", "high"),
    [
        ("tensorflow/core/kernels/conv_ops.cc", 1.2, 2.0),
        ("tensorflow/core/kernels/conv_ops_test.cc", 0.0, 0.1),
        ("tensorflow/java/src/main/Graph.java", 0.0, 0.1),
        ("tensorflow/lite/kernels/conv.cc", 0.0, 0.1),
        ("tensorflow/python/ops/nn_ops.py", 0.9, 1.1),
        ("tensorflow/core/platform/windows/port.cc", 0.0, 0.1),
        ("tensorflow/g3doc/api.md", 0.0, 0.1),
    ],
)
def test_tensorflow_paths(path: str, low: float, high: float) -> None:
    """In a TensorFlow tree other languages, platforms and tests weigh little, kernels much."""
    assert low <= path_weights([[path]])[0] <= high


def test_rules_of_a_recipe_win_and_nothing_weighs_zero() -> None:
    """A recipe's own globs override the defaults, bounded from below."""
    weights = path_weights([["docs/a.md"], ["src/a.cc"]], {"docs/**": 5.0, "src/**": 0.0})
    assert weights.tolist() == [5.0, LEAST]


def test_a_star_does_not_cross_directories() -> None:
    """``*`` stays within a directory and ``**`` crosses them."""
    rules = {"lib/*.c": 3.0, "lib/deep/**": 7.0}
    weights = path_weights([["lib/a.c"], ["lib/x/a.c"], ["lib/deep/x/y/a.c"]], rules)
    assert weights.tolist() == [3.0, 1.0, 7.0]
