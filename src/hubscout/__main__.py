"""`python -m hubscout` is the command `hubscout`."""

from hubscout.cli import program

if __name__ == "__main__":
    program()
