"""The scripts of this folder import each other by their plain names; so do its tests."""

import sys
from pathlib import Path

from hubscout.hubs import prepare_torchvision

prepare_torchvision()
sys.path.insert(0, str(Path(__file__).parent))
