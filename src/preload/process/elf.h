/* elf.h: symbols of libraries that are loaded already, found without dlsym() and without
 * allocating.
 *
 * Two needs meet here. Our own dlsym() has to reach the C library's from inside a malloc
 * replacement's constructor, where nothing else works yet. And the library must load into C
 * libraries back to glibc 2.17, so it may not link to symbols that moved or were born later
 * (dlopen, pthread_create: libdl and libpthread before 2.34, libc since). Thread-safe. */
#pragma once

/* The default version of a function in the C library itself: libc.so.6, libdl.so.2 or
 * libpthread.so.0, whichever are loaded, never an interposer's. NULL: not there (or an indirect
 * function, which this does not resolve). */
void *elf_find_libc(const char *symbol);
