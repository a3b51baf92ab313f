"""The one entry: flags -> gin -> an Experiment -> a mode.

    python train.py --gin_file=configs/runs/NAME.gin [--gin_file=MORE.gin] [--gin.path.to=VALUE ...] --workdir=DIR
        [--mode=train|eval|explain|prove] [--simulated_devices=8] [--allow_config_change]

Later gin files and --gin.X=Y win. Exit status: 0 done; 2 the user's mistake, said in one message; 1 a fault of the run;
143 stopped by SIGTERM after a checkpoint.
"""

import sys

from mistake import Mistake
from training.checkpoint import DamagedCheckpoint
from training.faults import FAULT, MISTAKE, RunFault
from training.flags import parse
from training.modes import MODES


def main(argv: list[str]) -> int:
    """Runs the command; returns its exit status."""
    try:
        flags = parse(argv, MODES)
        return MODES[flags.mode](flags)
    except Mistake as mistake:
        print(mistake, file=sys.stderr)
        return MISTAKE
    except (RunFault, DamagedCheckpoint) as fault:
        print(fault, file=sys.stderr)
        return FAULT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
