"""Linear worlds inside JAX: the learner `linear`, with the algebra of `chary.linear`."""
