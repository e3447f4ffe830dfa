"""The engine on the paper's tasks and the transformers that come with the toolkit."""
