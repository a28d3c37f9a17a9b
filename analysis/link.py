"""stub"""
from analysis.settings import DEFAULT


def experiment_of(query): return DEFAULT, []
