"""Mixed precision, one rule for all backends: the types of every layer's input, output and
gradient.

Master weights and the optimizer state are float32. A layer of products (`DtypePolicy.PRODUCT`:
linear, convolution, attention, LSTM) casts its input and its weights to the type, multiplies, and
returns the type; inside, its kernel may use higher precision. Norms, the mean over positions,
embeddings and the loss take and return float32 (`DtypePolicy.SINGLE`). Where two values meet
(`DtypePolicy.PROMOTE`: merge, position, bias) the result has the wider type. All other layers keep
the type of their input (`DtypePolicy.SAME`). A gradient has the type of the value that it belongs
to: those of weights return through the cast as float32, and are accumulated over chunks and ranks
in float32.

Ranks that share a model send values in their type. Where ranks compute the terms of a sum for a
split layer, each term is of the low-precision type, the terms are added in float32, and the sum is
rounded to the type.

The loss may be scaled before the backward pass (`Scaler`), so that small gradients do not become 0
in float16.

Source: Micikevicius et al. 2018, "Mixed Precision Training", sec. 3; the choice of layers is
PyTorch's for autocast, except for norms, which autocast on a CPU leaves in the type of their input.
"""

from dualml.algorithms.precision.rule import LayerPrecision as LayerPrecision
from dualml.algorithms.precision.rule import Stack as Stack
from dualml.algorithms.precision.rule import cast_parameter_names as cast_parameter_names
from dualml.algorithms.precision.rule import layer_precisions as layer_precisions
from dualml.algorithms.precision.rule import low_precision_layers as low_precision_layers
from dualml.algorithms.precision.rule import propagate_precision as propagate_precision
from dualml.algorithms.precision.scaling import SLOT as SLOT
from dualml.algorithms.precision.scaling import Scaler as Scaler
from dualml.algorithms.precision.settings import FULL as FULL
from dualml.algorithms.precision.settings import PRECISIONS as PRECISIONS
from dualml.algorithms.precision.settings import LossScale as LossScale
from dualml.algorithms.precision.settings import Precision as Precision
from dualml.algorithms.precision.types import ROUNDOFF as ROUNDOFF
from dualml.algorithms.precision.types import is_representable as is_representable
from dualml.algorithms.precision.types import round_to_type as round_to_type
from dualml.algorithms.precision.types import ulp as ulp
