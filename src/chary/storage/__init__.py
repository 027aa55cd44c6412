"""Files: atomic writes, sealed states, and the folder of one result."""
