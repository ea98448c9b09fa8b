/* elf.h: finds symbols of loaded libraries, without dlsym() and without allocating.
 *
 * It has two uses. Our own dlsym() must reach that of the C library even from the constructor of a
 * malloc replacement, where nothing else works yet. And libsublet.so must load into C libraries
 * back to glibc 2.17, so it may not link to symbols that moved (dlopen, pthread_create: in libdl
 * and libpthread before 2.34, in libc since) or are newer. Thread-safe. */
#pragma once

/* Returns the default version of a function in the C library itself (libc.so.6, libdl.so.2,
 * libpthread.so.0), never that of an interposer. NULL: there is none, or it is an indirect
 * function.
 */
void *elf_find_libc(const char *symbol);
