/* sim_unit.h: tests of the simulated driver. Each runs in its own process with its own cards,
 * because a process can set up the driver only once, and a failed context stays failed. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "../unit.h"
#include "cuda/cuda_abi.h"
#include "sim/session/session.h"

#define CU(base, symbol, since, flags, behaviour, stream, params, args) CUresult symbol params;
#include "cuda/cuda_api.def"

#define UNIT_MIB ((size_t)1 << 20)

/* Replaces cmocka's assertions, which in the process of a test would jump to the wrong place. */
#define CHECK(condition)                                                   \
        do {                                                               \
                if (!(condition))                                          \
                        unit_failed(__FILE__, __LINE__, #condition, 1, 0); \
        } while (0)
#define CHECK_EQUAL(a, b)                                                              \
        do {                                                                           \
                long long unit_a = (long long)(a), unit_b = (long long)(b);            \
                if (unit_a != unit_b)                                                  \
                        unit_failed(__FILE__, __LINE__, #a " == " #b, unit_a, unit_b); \
        } while (0)
#define OK(call) CHECK_EQUAL((call), CUDA_SUCCESS)

void unit_failed(const char *file, int line, const char *what, long long a, long long b)
        __attribute__((noreturn));

/* SIM_TEST(name) { ... } defines a cmocka test. settings: "SIMCUDA_MEMORY=64MiB ..." or "". */
void unit_run(void (*body)(void), const char *settings);
#define SIM_TEST_WITH(name, settings)            \
        static void name##_body(void);           \
        static void name(void **state)           \
        {                                        \
                (void)state;                     \
                unit_run(name##_body, settings); \
        }                                        \
        static void name##_body(void)
#define SIM_TEST(name) SIM_TEST_WITH(name, "")

/* Calls cuInit, and makes the primary context current. */
CUcontext unit_begin(void);

/* Returns a kernel. store(p) sets *p to 1, wait_flag(p) waits until *p != 0, add_one(p) adds 1 to
 * *p. count(p), with words of 64 bits, counts in p[0] until p[1] != 0, and puts the sum of all its
 * numbers into p[2]. */
CUfunction unit_kernel(const char *name);
CUresult unit_launch(CUfunction f, CUdeviceptr p, CUstream s);

/* Allocates pinned memory, all zero. */
void *unit_pinned(size_t bytes);
CUdeviceptr unit_address(const volatile void *host);
void unit_set_flag(unsigned *flag);

/* Creates memory, maps it at a new address, and makes it accessible. */
CUdeviceptr unit_map(size_t bytes, CUmemGenericAllocationHandle *ret_handle);
CUmemGenericAllocationHandle unit_create(size_t bytes);
void unit_map_at(CUdeviceptr at, size_t bytes, CUmemGenericAllocationHandle handle);

/* Another process of the same session, started before this one's cuInit. It runs body(), whose
 * unit_tell() and unit_wait_told() pair with unit_peer_wait() and unit_peer_tell() here. */
struct unit_peer {
        pid_t pid;
        int in, out;
};
struct unit_peer unit_peer_start(void (*body)(void));
void unit_peer_wait(struct unit_peer *p); /* waits until the peer calls unit_tell() */
void unit_peer_tell(struct unit_peer *p);
void unit_peer_end(struct unit_peer *p); /* checks that the peer succeeded */
void unit_peer_kill(struct unit_peer *p);
void unit_tell(void);
void unit_wait_told(void);

/* Both read the session as a process outside would. */
struct session_totals unit_totals(unsigned device);
uint64_t unit_used(unsigned device);

/* Returns true under an emulator of system calls (SUBLET_EMULATED), and prints what the emulator
 * lacks for the test. */
bool unit_emulated(const char *what);
