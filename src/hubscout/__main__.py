"""`python -m hubscout` is the command `hubscout`."""

from hubscout.cli import main

if __name__ == "__main__":
    main()
