"""Empirical checks of mechanisms as they run: planted records, the real runner, a real meter.

reconstruction: do planted keys come out more often than keys that nobody planted (paper 001, Appendix D.5.1)?
leave_one_out: is the realized privacy loss of what a batch wrote below its stated cost (D.5.2)?

An audit looks at planted data only. Its figures depend on that data and on nobody's.
"""
