import os
from torch.utils.cpp_extension import load

OPERATORS = {
    'vector_add': ['src/bindings/vector_add.cpp', 'src/kernels/vector_add.cu'],
    'relu': ['src/bindings/relu.cpp', 'src/kernels/relu.cu'],
    'softmax': ['src/bindings/softmax.cpp', 'src/kernels/softmax.cu'],
}


def compile_ops():
    modules = {}
    for name, sources in OPERATORS.items():
        if not all(os.path.exists(source) for source in sources):
            print(f'{name}: skipped, sources are missing')
            continue
        modules[name] = load(
            name=name,
            sources=sources,
            extra_include_paths=['src/utils'],
            verbose=True,
        )
    return modules


if __name__ == '__main__':
    print(sorted(compile_ops()))
