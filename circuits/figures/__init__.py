"""Figures and HTML pages."""
