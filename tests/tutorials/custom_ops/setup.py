from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

setup(
    name="cuda_add",
    version="0.1",
    ext_modules=[
        CUDAExtension("cuda_add", ["vector_add.cu"]),
    ],
    cmdclass={"build_ext": BuildExtension},
)
