"""The circuits of all models of a sweep: found, validated, compared."""
