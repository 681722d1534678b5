import glob
import os

from setuptools import find_packages, setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

extensions = []
for binding in sorted(glob.glob('src/bindings/*.cpp')):
    op = os.path.splitext(os.path.basename(binding))[0]
    kernel = f'src/kernels/{op}.cu'
    if not os.path.exists(kernel):
        continue
    extensions.append(
        CUDAExtension(
            name=f'cuda_ops.{op}',
            sources=[binding, kernel],
            include_dirs=['src/utils'],
            extra_compile_args={'cxx': ['-O3'], 'nvcc': ['-O3', '--use_fast_math']},
        )
    )

setup(
    name='cuda_ops',
    version='0.1.0',
    packages=find_packages(include=['cuda_ops']),
    ext_modules=extensions,
    cmdclass={'build_ext': BuildExtension},
)
