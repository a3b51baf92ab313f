"""What a model is trained for. An objective is a module with its encoder and head: `losses(batch, randomness) -> Sums`.

Sums are pairs (sum, weight) by name; 'loss' is what is minimized, after sums and weights were added over microbatches,
devices
and processes, and divided once. Batches are zero wherever they are padded, so padding weighs nothing.
"""
