"""Run ResNet-50 on synthetic images and print the throughput of every step.

The step is one compiled graph, so that TensorFlow is measured and not the Python around it.

Runs with TensorFlow 1.15 and every 2.x. Each parameter is an option, or an environment variable:
``--batch`` is RESNET50_BATCH, and so on.
"""

import argparse
import os
import sys
import time
from typing import Any, Union

import numpy as np
import tensorflow.compat.v2 as tf  # type: ignore[import-untyped]


def parse_arguments() -> argparse.Namespace:
    """Return the parameters."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default, meaning in (
        ("batch", 8, "images per step"),
        ("size", 224, "pixels along each side of an image"),
        ("classes", 1000, "classes to tell apart"),
        ("steps", 12, "batches to classify"),
    ):
        value = int(os.environ.get("RESNET50_" + name.upper(), default))
        parser.add_argument("--" + name, type=int, default=value, help=meaning)
    return parser.parse_args()


def main() -> Union[int, str]:  # noqa: UP007 - old Pythons run this
    """Classify, print one line per step, and fail if the answer is no probability."""
    arguments = parse_arguments()
    tf.enable_v2_behavior()
    tf.random.set_seed(1)
    shape = (arguments.size, arguments.size, 3)
    pixels = np.random.RandomState(1).uniform(size=(arguments.batch, *shape))
    images = tf.constant(pixels.astype("float32"))
    model = tf.keras.applications.ResNet50(
        weights=None, input_shape=shape, classes=arguments.classes
    )

    @tf.function  # type: ignore[untyped-decorator]
    def classify(batch: Any) -> Any:
        return model(batch, training=False)

    answer = None
    for step in range(1, arguments.steps + 1):
        started = time.perf_counter()
        answer = classify(images).numpy()
        seconds = time.perf_counter() - started
        print(f"step {step}: images/sec: {arguments.batch / seconds:.4f}", flush=True)
    print(f"tensorflow {tf.__version__}", flush=True)
    sums = np.asarray(answer).sum(axis=1)
    return 0 if np.allclose(sums, 1.0, atol=1e-3) else f"no probabilities: they sum to {sums}"


if __name__ == "__main__":
    sys.exit(main())
