"""How a model is spread: meshes, rules from logical to physical axes, layouts, and one file a mode of parallelism."""
