"""Train ResNet-50 on synthetic images and print the throughput of every step.

The step is one compiled graph, gradients and update included, so that TensorFlow is measured and
not the Python around it: ``train_on_batch`` costs seconds of its own at each call since Keras 3.

Runs with TensorFlow 1.15 and every 2.x. Each parameter is an option, or an environment variable:
``--batch`` is RESNET50_BATCH, and so on.
"""

import argparse
import os
import sys
import time
from typing import Any, Callable, Union  # noqa: UP035 - old Pythons run this

import numpy as np
import tensorflow.compat.v2 as tf  # type: ignore[import-untyped]


def parse_arguments() -> argparse.Namespace:
    """Return the parameters."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default, meaning in (
        ("batch", 8, "images per step"),
        ("size", 128, "pixels along each side of an image"),
        ("classes", 1000, "classes to tell apart"),
        ("steps", 12, "training steps"),
    ):
        value = int(os.environ.get("RESNET50_" + name.upper(), default))
        parser.add_argument("--" + name, type=int, default=value, help=meaning)
    return parser.parse_args()


def build_step(size: int, classes: int) -> Callable[[Any, Any], Any]:
    """Return a compiled training step of a ResNet-50 with weights at random.

    It takes images and labels and returns the loss.
    """
    model = tf.keras.applications.ResNet50(
        weights=None, input_shape=(size, size, 3), classes=classes
    )
    # A small step keeps the loss finite: NaN and denormal numbers change the speed.
    optimizer = tf.keras.optimizers.SGD(learning_rate=0.001, momentum=0.9)

    @tf.function  # type: ignore[untyped-decorator]
    def train(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            answers = model(images, training=True)
            losses = tf.keras.losses.sparse_categorical_crossentropy(labels, answers)
            loss = tf.reduce_mean(losses)
        variables = model.trainable_variables
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables))  # noqa: B905 - as above
        return loss

    return train  # type: ignore[no-any-return]


def main() -> Union[int, str]:  # noqa: UP007 - old Pythons run this
    """Train, print one line per step, and fail if the training went wrong."""
    arguments = parse_arguments()
    tf.enable_v2_behavior()
    tf.random.set_seed(1)
    random = np.random.RandomState(1)
    shape = (arguments.batch, arguments.size, arguments.size, 3)
    images = tf.constant(random.uniform(size=shape).astype("float32"))
    labels = tf.constant(random.randint(arguments.classes, size=(arguments.batch, 1)))
    train = build_step(arguments.size, arguments.classes)
    loss = float("nan")
    for step in range(1, arguments.steps + 1):
        started = time.perf_counter()
        loss = float(train(images, labels))
        seconds = time.perf_counter() - started
        print(f"step {step}: images/sec: {arguments.batch / seconds:.4f}", flush=True)
    print(f"tensorflow {tf.__version__}, loss {loss:.4f}", flush=True)
    return 0 if np.isfinite(loss) else "the loss is not finite: this was no training"


if __name__ == "__main__":
    sys.exit(main())
