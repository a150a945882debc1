"""Train a small residual network and print how many images per second it took.

Seconds are the process's own processor time, so that a neighbour on the same machine costs the
figure little; `wall` beside it is by the clock on the wall.
"""

import argparse
import random
import time

import tf_demo  # type: ignore[import-not-found]


def main() -> None:
    """Train for some windows of time; print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=0.05, help="length of a window")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--size", type=int, default=8, help="height and width of an image")
    parser.add_argument("--depth", type=int, default=24)
    parser.add_argument("--blocks", type=int, default=2)
    args = parser.parse_args()

    generator = random.Random(7)  # noqa: S311
    pixels = args.batch * args.size * args.size
    images = tf_demo.tensor(pixels * 3, (generator.gauss(0, 1) for _ in range(pixels * 3)))
    target = tf_demo.tensor(pixels * args.depth)
    model = tf_demo.ResNet(args.batch, args.size, args.depth, args.blocks)

    for _ in range(args.windows):
        steps, loss = 0, 0.0
        started, started_wall = time.process_time(), time.perf_counter()
        while time.process_time() - started < args.seconds:
            loss = model.train_step(images, target)
            steps += 1
        seconds = time.process_time() - started
        wall = time.perf_counter() - started_wall
        rate, wall_rate = steps * args.batch / seconds, steps * args.batch / wall
        print(f"loss: {loss:.4f} wall: {wall_rate:.1f} images/sec: {rate:.1f}", flush=True)


if __name__ == "__main__":
    main()
