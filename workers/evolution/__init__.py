"""Samples that evolve under votes: written, selected by released counts, varied. No record is in
reach.
"""
