"""``python -m farthing.cli``."""

from farthing.cli.entry import main

if __name__ == "__main__":
    main()
