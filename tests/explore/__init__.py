"""An explorer of the protocol: the real scripts on a real server as the transition relation, walked state by state.

``engine`` runs the scripts from any state and says what became of it, ``world`` is a state (what the server keeps and
what each process knows), ``moves`` what can happen next, ``client`` what a process makes of an answer, ``rules`` what
must hold after it, ``walk`` the search.
``python -m tests.explore --help`` from the checkout runs it by hand; ``test_explore.py`` runs it in the suite, and
plants the faults of ``faults.py``, each of which it must find. ``store`` does the same for tables.
"""
