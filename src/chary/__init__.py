"""chary: reinforcement learning with an exploration budget that every single episode keeps."""

__version__ = "0.1.0"
