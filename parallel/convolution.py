"""Convolution of images on one device: the reference that partitioned ones are tested against."""

import jax


def convolution(x_BHWC, kernel_HWIO, *, strides=(1, 1), dilation=(1, 1), padding="SAME", groups=1) -> jax.Array:
    """[B, H', W', O], the dtype of x; sums in float32."""
    y = jax.lax.conv_general_dilated(
        x_BHWC,
        kernel_HWIO.astype(x_BHWC.dtype),
        strides,
        padding,
        rhs_dilation=dilation,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )
    return y.astype(x_BHWC.dtype)
