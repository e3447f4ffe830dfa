"""Trained models for others.

- export.py: a small model directory from a finished run
- card.py: model cards
- sharing.py: push: to the Hugging Face Hub
"""
