"""Everything that a gin file may name: importing this registers it."""

import data.sources  # noqa: F401
import data.tasks  # noqa: F401
import data.tokenizer  # noqa: F401
import models.bert
import models.objectives.classification
import models.objectives.masked_lm
import models.objectives.sentence_embedding
import parallel.mesh
import parallel.remat
import parallel.rules
import training.batch
import training.checkpoint
import training.experiment
import training.optimizers
import training.prove
import training.schedules  # noqa: F401
