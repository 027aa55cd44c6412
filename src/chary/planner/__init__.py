"""Planning: a slow oracle, compiled kernels that agree with it, and plans as values."""
