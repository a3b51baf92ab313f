"""What a model is trained for. An objective is a module with its encoder and head.

    losses(batch, randomness) -> Sums      pairs (sum, weight) by name, of everything that is minimized or only shown
    minimized: {'loss': 1.0}               which sums are minimized, with what coefficient
    weights(batch) -> {'loss': scalar}     the weight of each of these, of the batch alone

What is minimized is sum_k coefficient_k * sum_k / weight_k, where sums and weights were added over microbatches, devices and
processes before each was divided once. Batches are zero wherever they are padded, so padding weighs nothing.
"""
