"""One of two processes that meet: `python meeting.py PORT PROCESS`. Process 1 never comes to the second meeting."""

import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from mistake import Mistake
from training import hosts
from training.faults import FAULT, RunFault
from training.flags import Hosts

process = int(sys.argv[2])
hosts.join(Hosts(f"localhost:{sys.argv[1]}", 2, process, patience=20.0), "train")
print("brought", hosts.meet("the first", f"what {process} has"))
for number in range(3):
    hosts.same(f"number {number}", "one\ntwo", "Mend.")
try:
    hosts.same("the text", f"one\n{process}", "Mend.")
except Mistake as mistake:
    print("refused", mistake)
if process == 1:
    time.sleep(60)  # Ended by the fault of process 0, long before.
try:
    hosts.meet("the last", patience=1.0)
except RunFault as fault:
    hosts.stop_all(FAULT, str(fault))
