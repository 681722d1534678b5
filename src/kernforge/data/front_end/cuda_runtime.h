/* The front end is that of CUDA {front}; sources choose by the CUDA that they are compiled for. */
#ifdef __CUDACC_VER_MAJOR__
#undef __CUDACC_VER_MAJOR__
#undef __CUDACC_VER_MINOR__
#undef __CUDACC_VER_BUILD__
#undef __CUDA_API_VER_MAJOR__
#undef __CUDA_API_VER_MINOR__
#define __CUDACC_VER_MAJOR__ {major}
#define __CUDACC_VER_MINOR__ {minor}
#define __CUDACC_VER_BUILD__ {build}
#define __CUDA_API_VER_MAJOR__ {major}
#define __CUDA_API_VER_MINOR__ {minor}
#endif
#include_next <cuda_runtime.h>
