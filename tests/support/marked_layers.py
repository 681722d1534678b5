# SPDX-License-Identifier: Apache-2.0
"""Marked layers of a model, and kernels' layers to replace them, without a built kernel."""

from torch import nn

from kernforge import Mode, kernelize, use_kernel_forward_from_hub, use_kernelized_func


class AddOneLayer(nn.Module):
    def forward(self, x):
        return x + 1


class AddOne:
    @staticmethod
    def load():
        return AddOneLayer


class FailingSource:
    def __init__(self, error):
        self.error = error

    def load(self):
        raise self.error


@use_kernel_forward_from_hub("Same", condition=lambda module: module.willing)
class Same(nn.Module):
    willing = True

    def forward(self, x):
        return x


@use_kernel_forward_from_hub("Other")
class Other(nn.Module):
    def forward(self, x):
        return x


@use_kernel_forward_from_hub("same_function")
def same_function(x):
    """Return the argument."""
    return x


@use_kernelized_func(same_function)
class Caller(nn.Module):
    def forward(self, x):
        return same_function(x)


def kernelize_on_cpu(network, **how):
    return kernelize(network, mode=Mode.INFERENCE, device="cpu", **how)


def attributes_of(network):
    return [dict(module.__dict__) for module in network.modules()]
