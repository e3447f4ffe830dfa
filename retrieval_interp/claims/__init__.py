"""The paper's quantitative claims, each beside what was measured here, section by section."""
