"""All checks of one circuit, and the report.

- validation.py: validate: run every check, in order
- validation_report.py: ValidationReport: the results; save, plot, to_json
- verdicts.py: the outcome of every step, in one sentence
- report_files.py: report.json, report.md and report.html
- loss_figures.py: figures of losses
"""
