"""MLPs: where they are needed, and where a linear map does as well.

- mlps.py: mlp_ablations
- mlp_report.py: MLPReport: its result
"""
