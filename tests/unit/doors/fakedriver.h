/* fakedriver.h: what the tests of the doors ask their driver (fakedriver.c). */
#pragma once

unsigned fakedriver_calls(const char *symbol);
/* The next calls of a function fail with CUDA_ERROR_OUT_OF_MEMORY. */
void fakedriver_refuse(const char *symbol, unsigned times);
/* Calls that came by an entry which only cuGetProcAddress hands out. */
unsigned fakedriver_second_entry_calls(void);
unsigned fakedriver_newer_calls(void);
