"""``python -m vaswani_plugin`` prints the plugin's directory, for ``--user-dir "$(python -m vaswani_plugin)"``."""

from pathlib import Path

if __name__ == "__main__":
    print(Path(__file__).resolve().parent)
