"""The layers that families share.

Shape letters, in every file of models/: B batch, S sequence length, D model dimension (embed), F feed-forward hidden
(mlp), N attention heads, K key/value heads, H head dimension, V vocabulary, P predicted positions, L layers, C classes.
"""
