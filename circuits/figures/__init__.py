"""Figures and HTML pages.

- page.py: self-contained HTML pages
- diagram.py: circuit_diagram: roles across, layers upwards, and by which senders heads find their place
- attention_figure.py: attention from role to role, head by head
"""
