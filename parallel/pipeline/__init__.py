"""Pipelines: a stack of equal layers cut into stages that work on different microbatches at once."""

from parallel.pipeline.one_f_one_b import one_f_one_b
from parallel.pipeline.schedule import Pipeline
from parallel.pipeline.shifting import pipelined

__all__ = ["Pipeline", "one_f_one_b", "pipelined"]
