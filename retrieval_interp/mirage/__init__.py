"""Is emergence a mirage of the metric? The same runs by several metrics, over training and over depth.

- answer_metrics.py: metrics of the answers, from continuous to discontinuous
- metric_curves.py: the metrics of one run, and the attention of its paths, at every checkpoint
- rises.py: what is a jump
- mirage.py: what jumps over training; depth_ways.py: what jumps over depth
- mirage_page.py: the page and its tables
"""
