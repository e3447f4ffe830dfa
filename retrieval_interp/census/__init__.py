"""The census: find, validate and compare the circuits of all models of a sweep."""
