"""KV cache: block accounting (pure) and the stores that hold a stage's tensors."""
