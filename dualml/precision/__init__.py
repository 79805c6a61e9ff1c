"""Mixed precision, one rule for all backends: what is computed in a lower type, and what is not.

Master weights and the optimizer's state are float32. A layer of products (`Way.PRODUCT`: linear,
convolution, attention, LSTM) casts its input and its weights to the type, multiplies, and gives the
type out; inside, its kernel may hold more. Norms, the mean over positions, embeddings and the loss
take and give float32 (`Way.SINGLE`). Where two values meet (`Way.PROMOTE`: merge, position, bias)
the wider type comes out. All else keeps the type that it gets (`Way.SAME`). A gradient has the type
of the value that it belongs to: those of weights come back through the cast as float32, and are
added up over chunks and ranks there.

Ranks that share a model pass values on in their type. Terms of a sum, which ranks have computed of
a split layer, are each of the type, are added up in float32, and the sum is rounded to the type.

The loss may be scaled before the backward pass (`Scaler`), so that small gradients do not become 0
in float16.

Source: Micikevicius et al. 2018, "Mixed Precision Training", sec. 3; which layers do what is
PyTorch's choice for autocast, but for norms, which autocast on a CPU leaves as they come.
"""

from dualml.precision.rule import Held as Held
from dualml.precision.rule import Stack as Stack
from dualml.precision.rule import cast_parameters as cast_parameters
from dualml.precision.rule import held_lower as held_lower
from dualml.precision.rule import holding as holding
from dualml.precision.rule import through as through
from dualml.precision.scaling import SLOT as SLOT
from dualml.precision.scaling import Scaler as Scaler
from dualml.precision.settings import FULL as FULL
from dualml.precision.settings import PRECISIONS as PRECISIONS
from dualml.precision.settings import LossScale as LossScale
from dualml.precision.settings import Precision as Precision
from dualml.precision.types import ROUNDOFF as ROUNDOFF
from dualml.precision.types import fits as fits
from dualml.precision.types import rounded as rounded
from dualml.precision.types import units as units
