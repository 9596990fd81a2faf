"""Activations compared over several tasks, and the page of all studies in a folder.

``definition`` reads the tasks and data sets, ``tables`` the table of each. ``scores`` compares the
activations on each data set, and ``statistic`` over tasks; ``selections`` says how far the settings
depend on the seeds that selected them. ``sentences``, ``page`` and ``figure`` show the scoreboard.
``planning`` says which studies train a user's activations. ``studies_page`` and ``studies_latex``
show the tables of a folder, for ``actlab report``.

This room trains nothing. ``actlab.cli.scoreboard`` runs the studies and passes their tables to it.
"""
