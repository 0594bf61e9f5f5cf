"""Commands that run outside the toolkit: ``vaswani-NAME`` and ``python -m vaswani_plugin.tools.NAME``."""
