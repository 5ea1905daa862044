"""Training: students on pseudo-labels or views, and masked language models on pairs or on packed text."""

from transencoder.fit.masked import Pretrained as Pretrained
from transencoder.fit.masked import masked_loss as masked_loss
from transencoder.fit.masked import pack as pack
from transencoder.fit.masked import pretrain as pretrain
from transencoder.fit.masked import train_language_model as train_language_model
from transencoder.fit.student import DevMetrics as DevMetrics
from transencoder.fit.student import Fitted as Fitted
from transencoder.fit.student import TrainingData as TrainingData
from transencoder.fit.student import check_lora as check_lora
from transencoder.fit.student import fit as fit
from transencoder.fit.trainers import GoldAnnealing as GoldAnnealing
from transencoder.fit.trainers import Session as Session
from transencoder.fit.trainers import has_dropout as has_dropout
from transencoder.fit.trainers import steps_in_all as steps_in_all
