"""Public fields, once: queries return these models, the API dumps them, the client hands them
out.
"""
