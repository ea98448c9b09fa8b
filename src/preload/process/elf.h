/* elf.h: finds symbols of loaded libraries, without dlsym() and without allocating.
 *
 * It has two uses. Our own dlsym() must reach the C library's dlsym() even from the constructor of
 * a malloc replacement, where nothing else works yet. And libsublet.so must load into C libraries
 * back to glibc 2.17. So it may not link to newer symbols, nor to symbols that moved (dlopen and
 * pthread_create: from libdl and libpthread to libc in 2.34). Thread-safe. */
#pragma once

/* Returns the default version of a function in the C library itself (libc.so.6, libdl.so.2,
 * libpthread.so.0), never the one of an interposer. NULL: the C library has no such function, or
 * only an indirect one (STT_GNU_IFUNC). */
void *elf_find_libc(const char *symbol);
