"""``python -m retrieval_interp`` is the command line."""

from retrieval_interp.cli import main

main()
