"""The paper's quantitative claims, compared with the measurements of this project."""
