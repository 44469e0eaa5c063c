"""Measuring clock and tables on a server of the user's own, each figure beside its limit, measured in the same run.

One file per measurement: ``tick``, ``wake``, ``idle``, ``rate``, ``dense``. Each has a function ``measure`` that
returns plain numbers; ``report`` lays them out for people. A measurement never hangs: its processes have a deadline and
end with the program that started them. It checks its own work: a sum that is off ends it, there is no figure then.
"""
