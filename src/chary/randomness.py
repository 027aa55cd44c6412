"""Seeds by name: every stream of a run comes from its one seed, and no two streams overlap."""

from __future__ import annotations

import zlib

import numpy as np

from chary.errors import check_seed


def seed_for(seed: int, stream: str) -> int:
    """Return the seed of the stream called `stream`, a whole number that Gymnasium's `reset` accepts.

    Example:
        >>> seed_for(0, "world") == seed_for(0, "world"), seed_for(0, "world") == seed_for(0, "agent")
        (True, False)
    """
    check_seed(seed)
    sequence = np.random.SeedSequence(seed, spawn_key=(zlib.crc32(stream.encode()),))
    high, low = (int(word) for word in sequence.generate_state(2, np.uint64))
    return high << 64 | low


def generator_for(seed: int, stream: str) -> np.random.Generator:
    """Return the generator of a stream, as a Gymnasium environment has it after reset(seed=seed_for(...))."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed_for(seed, stream))))


def beside(generator: np.random.Generator | None, stream: str) -> np.random.Generator:
    """Return the generator of another stream with the same seed, 0 for None; nothing is drawn from the first.

    Example:
        >>> a, b = (beside(np.random.default_rng(7), "ties").random() for _ in range(2))
        >>> a == b, a == beside(np.random.default_rng(8), "ties").random()
        (True, False)
    """
    if generator is None:
        return generator_for(0, stream)
    words = generator.bit_generator.seed_seq.generate_state(4, np.uint64)
    entropy = [int(word) for word in words]
    return np.random.Generator(
        np.random.PCG64(np.random.SeedSequence(entropy, spawn_key=(zlib.crc32(stream.encode()),)))
    )
