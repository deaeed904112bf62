"""``python -m texseg`` is the command ``texseg``."""

from texseg.cli import main

if __name__ == "__main__":
    main()
