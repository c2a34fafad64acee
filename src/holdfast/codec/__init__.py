"""Values as JSON, checked against annotations: arguments, results and checkpoints.

Every accepted value comes back equal. So each value is encoded, decoded as its annotation, and compared before it is
stored: JSON writes NaN as null, a tuple as a list and a subclass as its base, and only a comparison finds all cases.
Without an annotation, only JSON's own types are accepted.

msgspec encodes and decodes. Classes that it does not know are in `custom_types`; annotations that name a class of
Pydantic are left to Pydantic as a whole, by `pydantic_adapter`.
"""

from holdfast.codec.checkpoints import check_checkpoint_type, decode_checkpoint, encode_checkpoint
from holdfast.codec.codec import TypeCodec, encoder
from holdfast.codec.custom_types import register_type
from holdfast.codec.hooks import decode_custom
from holdfast.codec.json_values import CODEC_ERRORS, MAX_DEPTH

__all__ = [
    "CODEC_ERRORS",
    "MAX_DEPTH",
    "TypeCodec",
    "check_checkpoint_type",
    "decode_checkpoint",
    "decode_custom",
    "encode_checkpoint",
    "encoder",
    "register_type",
]
