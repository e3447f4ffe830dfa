"""The report of a validation: a record that is written as JSON and read back, and one page.

- report.py: Report, Statement: the results of every check; save, read, tables
- page.py: the HTML page with its tables and figures, and its short summary as Markdown
"""
