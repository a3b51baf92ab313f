"""Where batches come from: sources of records, tokenizers, packing, tasks that make examples of them, and the loader."""
