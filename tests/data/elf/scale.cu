__constant__ float factor;
__global__ void scale(float* x) { x[threadIdx.x] *= factor; }
__global__ void sine(float* x) { x[threadIdx.x] = sinf(x[threadIdx.x]); }
