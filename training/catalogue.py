"""Everything that a gin file may name: importing these modules registers it."""

import importlib

for _module in (
    "data.sources",
    "data.tasks",
    "data.tokenizer",
    "models.bert",
    "models.layers.moe",
    "models.lm",
    "models.mbt",
    "models.objectives.causal_lm",
    "models.objectives.classification",
    "models.objectives.image_classification",
    "models.objectives.masked_lm",
    "models.objectives.sentence_embedding",
    "models.vit",
    "parallel.context",
    "parallel.mesh",
    "parallel.pipeline",
    "parallel.remat",
    "parallel.rules",
    "parallel.zero",
    "training.batch",
    "training.checkpoint",
    "training.experiment",
    "training.optimizers",
    "training.precision",
    "training.prove",
    "training.schedules",
):
    importlib.import_module(_module)
