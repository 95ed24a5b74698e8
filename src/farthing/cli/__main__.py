"""``python -m farthing.cli``."""

from farthing.cli.main import main

if __name__ == "__main__":
    main()
