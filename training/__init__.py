"""How a run goes: its configuration, state, step, checkpoints, loop and outputs."""
