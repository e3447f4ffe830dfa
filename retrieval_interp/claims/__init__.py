"""Every quantitative claim of the paper, beside what was measured here."""
