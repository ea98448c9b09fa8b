/* doors.h: the functions that the program gets in place of the driver's and of NVML's. */
#pragma once

/* Returns the function that replaces this one of the driver; NULL: none does. Does not allocate. */
void *doors_replace(const char *symbol);
/* The same for NVML. */
void *doors_replace_nvml(const char *symbol);
