"""Empirical audits of mechanisms as they run: planted records, the real runner, a real meter.

reconstruction tests whether planted keys are emitted more often than keys that nobody planted
(paper 001, Appendix D.5.1). leave_one_out tests whether the realized privacy loss of a batch's
texts is below its stated cost (D.5.2).

An audit reads planted data only. Its figures depend on that data alone.
"""
