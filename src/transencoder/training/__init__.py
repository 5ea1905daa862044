"""The engine: `train` and `plan` take the config of any method."""

from transencoder.training.run import Plan as Plan
from transencoder.training.run import Trained as Trained
from transencoder.training.run import plan as plan
from transencoder.training.run import train as train
