/* fakedriver.h: lets the tests of the doors query and steer their driver (fakedriver.c). */
#pragma once

unsigned fakedriver_calls(const char *symbol);
/* Makes the next calls of a function fail with CUDA_ERROR_OUT_OF_MEMORY. */
void fakedriver_refuse(const char *symbol, unsigned times);
/* Calls of entry points that only cuGetProcAddress returns. */
unsigned fakedriver_second_entry_calls(void);
unsigned fakedriver_newer_calls(void);
