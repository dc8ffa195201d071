"""The checks that commands make before they act: of the machine, the databases and the
expressions.
"""
