"""The checks of ``validate``: each is a file with a function of one ``Experiment``, its record, and its verdict."""
