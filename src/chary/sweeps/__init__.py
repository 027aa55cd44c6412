"""Sweeps: many runs described by one file, played by many processes, kept in one folder."""
