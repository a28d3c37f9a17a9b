"""What leaves the page as a file, and comes back: one module per format.

Every format is made from a :class:`~analysis.record.Record` and the pictures that the page draws of it, so a file never
says anything else than the page did. Paths of this machine are left out of all of them.
"""
