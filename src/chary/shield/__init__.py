"""The shield: decides, step by step, whether an episode can still afford to explore."""
