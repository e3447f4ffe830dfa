"""Figures and HTML pages.

- page.py: self-contained HTML pages
- diagram.py: circuit_diagram: roles across, layers upwards
- attention_figure.py: attention from role to role, head by head
"""
