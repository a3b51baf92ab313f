"""Where batches come from: sources, tokenizers, packing, tasks that make examples of them, the loader."""
