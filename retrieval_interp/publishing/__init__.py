"""Publishing trained models.

- export.py: export: a small model directory from a finished run
- card.py: model_card: a model card in Markdown
- sharing.py: push: upload to the Hugging Face Hub
"""
