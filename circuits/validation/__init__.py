"""Is this the circuit, all of the circuit, and nothing but the circuit?

- validation.py: validate: every check, in order
- validation_report.py: ValidationReport: what was found; save, plot, to_json
- verdicts.py: the outcome of every step, in a sentence
- report_files.py: report.json, report.md and report.html
- loss_figures.py: losses as figures
"""
