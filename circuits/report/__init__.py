"""The report of a validation: a record that is written as JSON and read back, and one page."""
