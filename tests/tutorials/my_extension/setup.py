from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

setup(
    name='my_ops',
    ext_modules=[
        CUDAExtension('my_ops', [
            'my_op.cpp',
            'my_op.cu',
        ]),
    ],
    cmdclass={
        'build_ext': BuildExtension
    }
)
