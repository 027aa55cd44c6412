"""The paired ensemble: networks that all evaluate one baseline, and price deviations by their differences."""
