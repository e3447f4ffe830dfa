"""From a transformer to its circuit: ``discover``, its stages, and what attention shows."""
