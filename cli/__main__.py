"""`python -m cli` is the `gateway` command."""

from cli.main import main

if __name__ == "__main__":
    main()
