"""Information flow along a circuit (paper, section 5), and the paths of fixed patterns."""
