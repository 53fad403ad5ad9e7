"""The registry of runners: one file each, named as its price in accountant.core.mechanisms is."""

from workers.interface import Runner
from workers.mechanisms import private_prediction

RUNNERS: dict[str, Runner] = {"private-prediction": private_prediction.Runner()}
