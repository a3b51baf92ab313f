"""Times the compilation of a training step for 12 and for 48 layers of the same widths: equal layers are a scan, so
it must not grow.

    uv run python benchmarks/compile_time.py

Prints seconds and processor seconds (medians of --runs fresh processes each, no cache), and the ratio of each. On a
busy machine only the processor's are to be believed.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
CONFIG = "configs/benchmarks/bert_base_step.gin"


def compile_seconds(num_layers: int) -> tuple[float, float]:
    """Seconds, and seconds of processor time, to lower and compile the step from abstract arguments: nothing is
    allocated.
    """
    sys.path.insert(0, str(ROOT))
    from training.flags import parse
    from training.modes import MODES
    from training.setup import build

    program = build(parse([f"--gin_file={ROOT / CONFIG}", f"--gin.bert.num_layers={num_layers}"], MODES)).program
    batch = program.abstract_batch(program.experiment.batch.size)
    began = time.perf_counter(), time.process_time()
    program.train_step.lower(program.abstract_state, batch).compile()
    return time.perf_counter() - began[0], time.process_time() - began[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--layers", type=int, help="time this depth here, and print its seconds as JSON")
    arguments = parser.parse_args()
    if arguments.layers:
        print(json.dumps(compile_seconds(arguments.layers)))
        return
    runs: dict[int, list[tuple[float, float]]] = {12: [], 48: []}
    for _ in range(arguments.runs):
        for layers, found in runs.items():
            command = [sys.executable, __file__, f"--layers={layers}"]
            out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            found.append(json.loads(out.splitlines()[-1]))
    medians = {
        layers: [statistics.median(values) for values in zip(*found, strict=True)] for layers, found in runs.items()
    }
    for layers, (wall, processor) in medians.items():
        print(f"{layers} layers  {wall:6.2f} s  {processor:6.2f} s of processor time")
    wall, processor = (deep / shallow for deep, shallow in zip(medians[48], medians[12], strict=True))
    print(f"ratio      {wall:6.2f}    {processor:6.2f}")


if __name__ == "__main__":
    main()
