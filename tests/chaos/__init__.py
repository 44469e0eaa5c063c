"""Faults, injected by seeded schedules into jobs of real worker processes on a real server, and what must hold after.

``plan`` makes a schedule of a seed, ``stage`` has the server, the proxies and the workers, ``faults`` what can be done
to them, ``worker`` is the program that runs meanwhile and writes down what it was told, ``checks`` reads that,
``ledger`` counts.
``python -m tests.chaos --help`` from the checkout runs schedules by hand; ``test_chaos.py`` runs a few in the suite.
"""

import sys
from pathlib import Path

#: ``proxy`` and ``remote`` stand beside this folder.
sys.path.insert(0, str(Path(__file__).parents[1]))
