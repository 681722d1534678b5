from ._ops import ops


def rgb_to_gray(image):
    return ops.rgb_to_gray(image)


def normalize_volume(volume, max_value):
    return ops.normalize_volume(volume, max_value)
