"""Times a training step of BERT-base on one CPU device, beside the same step in torch where torch is installed.

    uv run python benchmarks/bert_step.py [--steps=5]

Batch 8, sequence 128, 20 predictions, float32, AdamW, dropout .1. 'equal work' computes logits at every position, as
transformers does; 'as trained' at the masked positions only. Prints seconds a step (median), and the ratio to torch's.
For torch:
`python -m venv V && V/bin/pip install torch transformers`, then --torch_python=V/bin/python.
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

# Runs where torch is; prints the seconds of each step. The model is transformers' BertForMaskedLM, every default kept.
TORCH = """
import json, sys, time, torch
from transformers import BertConfig, BertForMaskedLM
torch.manual_seed(0)
model = BertForMaskedLM(BertConfig()).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)
tokens = torch.randint(5, 30522, (8, 128))
labels = torch.full((8, 128), -100)
labels[:, :20] = tokens[:, :20]
seconds = []
for _ in range(int(sys.argv[1]) + 1):
    began = time.perf_counter()
    optimizer.zero_grad()
    model(input_ids=tokens, attention_mask=torch.ones_like(tokens), labels=labels).loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    seconds.append(time.perf_counter() - began)
print(json.dumps(seconds[1:]))
"""


def ours(logits_at: str, steps: int) -> list[float]:
    """Seconds of each step, the compiled program warm."""
    sys.path.insert(0, str(ROOT))
    import jax

    from data.loader import Loader
    from training.flags import parse
    from training.modes import MODES
    from training.setup import build

    flags = parse([f"--gin_file={ROOT / CONFIG}", f"--gin.masked_lm.logits_at={logits_at!r}"], MODES)
    program = build(flags).program
    size = program.experiment.batch.size
    state = program.fresh_state()
    with Loader(program.experiment.data, "train", size, seed=0) as loader:
        batch = program.global_batch(next(loader), size)
    program.compile_train_step(state, batch)
    seconds = []
    for _ in range(steps + 1):
        began = time.perf_counter()
        state, _ = jax.block_until_ready(program.train_step(state, batch))
        seconds.append(time.perf_counter() - began)
    return seconds[1:]


def theirs(python: str, steps: int) -> list[float]:
    """The same in torch, by the interpreter `python`."""
    result = subprocess.run([python, "-c", TORCH, str(steps)], capture_output=True, text=True, check=True)
    return json.loads(result.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument(
        "--torch_python", help="a Python that has torch and transformers; without it only ours is timed"
    )
    parser.add_argument(
        "--only", choices=["masked", "all"], help="time this variant here, and print its seconds as JSON"
    )
    arguments = parser.parse_args()
    if arguments.only:
        print(json.dumps(ours(arguments.only, arguments.steps)))
        return
    medians = {}
    if arguments.torch_python:
        medians["torch"] = statistics.median(theirs(arguments.torch_python, arguments.steps))
        print(f"torch                     {medians['torch']:.2f} s a step")
    for label, logits_at in (("equal work", "all"), ("as trained", "masked")):
        # A process each: the memory of one does not weigh on the other.
        command = [sys.executable, __file__, f"--only={logits_at}", f"--steps={arguments.steps}"]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        median = statistics.median(json.loads(out.splitlines()[-1]))
        ratio = f", {median / medians['torch']:.2f} of torch's" if medians else ""
        print(f"meshwright, {label:<12}  {median:.2f} s a step{ratio}")


if __name__ == "__main__":
    main()
