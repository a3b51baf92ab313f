"""What is computed, in logical names only: layers, objectives, and one file a family of models."""
