"""The one entry: flags -> gin -> an Experiment -> a mode.

    python train.py --gin_file=configs/runs/NAME.gin [--gin_file=MORE.gin] [--gin.path.to=VALUE ...] --workdir=DIR
        [--mode=train|eval|explain|prove] [--simulated_devices=8] [--allow_config_change]
        [--multi_host | --coordinator_address=HOST:PORT --num_processes=N --process_id=I]

Later gin files and --gin.X=Y win. Exit status: 0 done; 2 the user's mistake, said in one message; 1 a fault of the run;
143 stopped by SIGTERM after a checkpoint. Of several processes all end with the status of the first that failed.
"""

import sys
import traceback

from mistake import Mistake
from training import hosts
from training.checkpoint import DamagedCheckpoint
from training.faults import FAULT, MISTAKE, RunFault
from training.flags import parse
from training.modes import MODES


def main(argv: list[str]) -> int:
    """Runs the command; returns its exit status."""
    try:
        flags = parse(argv, MODES)
        hosts.join(flags.hosts, flags.mode)
        status = MODES[flags.mode](flags)
        hosts.part()
        return status
    except Mistake as mistake:
        return hosts.stop_all(MISTAKE, str(mistake))
    except (RunFault, DamagedCheckpoint) as fault:
        return hosts.stop_all(FAULT, str(fault))
    except BaseException as error:
        if hosts.several():
            hosts.stop_all(FAULT, traceback.format_exc(), told=f"{type(error).__name__}: {error}")
        raise


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
