/* lab_driver.h: the driver for the programs of the lab, which load it at run time, from wherever
 * the environment names it.
 *
 * One file of a program includes this header. The file first defines DRIVER_CALLS(X), with X(name,
 * symbol, parameters) for each function that it calls. It also defines say_failed() and
 * say_no_driver(), which end the program. */
#pragma once

#include <dlfcn.h>
#include <stddef.h>

static struct {
#define X(name, symbol, parameters) int(*name) parameters;
        DRIVER_CALLS(X)
#undef X
} driver;

static _Noreturn void say_failed(const char *call, int result);
/* why: the loader's words. */
static _Noreturn void say_no_driver(const char *why);

#define TRY(call, ...)                                  \
        do {                                            \
                int result_ = driver.call(__VA_ARGS__); \
                if (result_ != 0)                       \
                        say_failed(#call, result_);     \
        } while (0)

static void load_driver(void)
{
        void *library = dlopen("libcuda.so.1", RTLD_NOW);

        if (!library)
                say_no_driver(dlerror());
#define X(name, symbol, parameters)                      \
        *(void **)&driver.name = dlsym(library, symbol); \
        if (!driver.name)                                \
                say_failed(symbol, -1);
        DRIVER_CALLS(X)
#undef X
}
