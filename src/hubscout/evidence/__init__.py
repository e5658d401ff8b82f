"""The mathematics: sufficient statistics, spectrum, evidence maximisation, posterior.

Arrays in, dataclasses out: no files of models, no tasks, no torch modules.
"""
