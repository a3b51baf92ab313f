"""The plan: a step compiled for machines that are not here, and read."""
