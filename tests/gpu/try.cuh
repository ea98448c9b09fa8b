// try.cuh: TRY(call) ends the program with a line of JSON if a call of CUDA's runtime fails.
#pragma once

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

#define TRY(call)                                                                                        \
        do {                                                                                             \
                cudaError_t e_ = (call);                                                                 \
                if (e_ != cudaSuccess) {                                                                 \
                        printf("{\"event\":\"error\",\"call\":\"%s\",\"error\":\"%s\"}\n", #call,        \
                               cudaGetErrorName(e_));                                                    \
                        exit(4);                                                                         \
                }                                                                                        \
        } while (0)
