"""What the configs of all methods share: the run, one encoder's training, members, text, teachers. No heavy imports."""

from transencoder.configs.fit import FitConfig as FitConfig
from transencoder.configs.fit import Member as Member
from transencoder.configs.fit import PretrainingConfig as PretrainingConfig
from transencoder.configs.ranges import BiLoss as BiLoss
from transencoder.configs.ranges import Criterion as Criterion
from transencoder.configs.ranges import CrossLoss as CrossLoss
from transencoder.configs.ranges import Form as Form
from transencoder.configs.ranges import Head as Head
from transencoder.configs.ranges import LabelPolicy as LabelPolicy
from transencoder.configs.ranges import OfEmbeddings as OfEmbeddings
from transencoder.configs.ranges import Pooling as Pooling
from transencoder.configs.ranges import Precision as Precision
from transencoder.configs.ranges import Selection as Selection
from transencoder.configs.ranges import Texts as Texts
from transencoder.configs.ranges import nearest as nearest
from transencoder.configs.run import RunConfig as RunConfig
