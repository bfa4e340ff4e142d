"""Run codemap without installing it: `python examples/codemap --root PATH`."""

from codemap.cli import main

if __name__ == "__main__":
    main()
