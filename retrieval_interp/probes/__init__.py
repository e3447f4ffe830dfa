"""Probes: what can be read from the residual stream, and where.

- probe.py: the layer after which a symbol can be read at the query; probe_page.py: its page
- role_probes.py: what every role knows after each layer
- linear_probe.py: the regressions of both
"""
