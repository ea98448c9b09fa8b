/* internal.h: the types that the parser and the interpreter share; no file outside sim/ptx includes
 * it. A function is compiled to a flat array of instructions, all of whose operands are slots. A
 * slot of a frame holds one register of 32 lanes (32 or 64 bits a lane; a predicate is one 32-bit
 * mask), so that one instruction works on a whole warp with loops that the compiler vectorises.
 * Immediates, addresses of symbols and kernel parameters are slots too, filled when a frame is
 * made. Registers narrower than 32 bits have 32-bit lanes whose upper bits mean nothing. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"
#include "sim/ptx/ptx.h"

#define WARP_LANES   32
#define FULL_MASK    UINT32_MAX
#define NO_SLOT      UINT32_MAX
#define NO_INDEX     UINT32_MAX
#define SLOT_ALIGN   64
#define BARRIERS_MAX 16

/* Windows of generic addresses, where no device or host pointer can lie. */
#define WINDOW_MASK   (UINT64_C(0xff) << 56)
#define WINDOW_SHARED (UINT64_C(0x51) << 56)
#define WINDOW_LOCAL  (UINT64_C(0x52) << 56)
#define WINDOW_PARAM  (UINT64_C(0x53) << 56)
/* %envreg1 and 2 point to this window: memory with which a cooperative launch synchronises. */
#define WINDOW_GRID (UINT64_C(0x55) << 56)

/* X(name, bits, class). Classes: 'u' unsigned, 's' signed, 'b' bits, 'f' float, 'p' predicate. */
#define PTX_TYPES(X)       \
        X(u8, 8, 'u')      \
        X(u16, 16, 'u')    \
        X(u32, 32, 'u')    \
        X(u64, 64, 'u')    \
        X(s8, 8, 's')      \
        X(s16, 16, 's')    \
        X(s32, 32, 's')    \
        X(s64, 64, 's')    \
        X(b8, 8, 'b')      \
        X(b16, 16, 'b')    \
        X(b32, 32, 'b')    \
        X(b64, 64, 'b')    \
        X(f16, 16, 'f')    \
        X(f16x2, 32, 'f')  \
        X(bf16, 16, 'f')   \
        X(bf16x2, 32, 'f') \
        X(f32, 32, 'f')    \
        X(f64, 64, 'f')    \
        X(pred, 1, 'p')

enum ptx_type {
        TYPE_NONE,
#define X(name, bits, letter) TYPE_##name,
        PTX_TYPES(X)
#undef X
                TYPES
};

struct type_info {
        const char *name;
        uint8_t bits;
        char letter;
};
extern const struct type_info ptx_type_info[TYPES];

static inline unsigned type_bits(enum ptx_type t)
{
        return ptx_type_info[t].bits;
}

static inline unsigned type_bytes(enum ptx_type t)
{
        return (ptx_type_info[t].bits + 7U) / 8;
}

static inline bool type_is(enum ptx_type t, char letter)
{
        return ptx_type_info[t].letter == letter;
}

/* Returns the bits of a lane that holds this type: 1, 32 or 64. */
static inline unsigned type_lane_bits(enum ptx_type t)
{
        unsigned bits = type_bits(t);

        return bits == 1 ? 1 : bits <= 32 ? 32 : 64;
}

enum ptx_space { SPACE_GENERIC, SPACE_GLOBAL, SPACE_CONST, SPACE_SHARED, SPACE_LOCAL, SPACE_PARAM };

/* Operations. Those of ops.def need only the lanes; those of warp_ops.def need the whole warp. */
enum ptx_op {
#define OP1(name, td, ta, expr)         OP_##name,
#define OP2(name, td, ta, tb, expr)     OP_##name,
#define OP3(name, td, ta, tb, tc, expr) OP_##name,
#define CMP(name, ta, expr)             OP_##name,
#define HAND(name)                      OP_##name,
#include "sim/ptx/ops.def"
        OP_LANES_END,
        OP_LANES_LAST = OP_LANES_END - 1,
#define WARP_OP(name, handler) OP_##name,
#include "sim/ptx/warp_ops.def"
        OP_WARP_END,
        OP_WARP_LAST = OP_WARP_END - 1,
        /* Operations that warp.c executes itself. */
        OP_BRA,
        OP_BRX,
        OP_CALL,
        OP_CALL_INDIRECT,
        OP_RET,
        OP_EXIT,
        OPS
};

/* The operands of an operation of ops.def, for the parser. */
struct op_info {
        uint8_t sources;
        uint8_t type[4]; /* type of the destination, and types of the sources */
};
extern const struct op_info ptx_op_info[OP_LANES_END];

enum atomic_kind {
        ATOMIC_ADD,
        ATOMIC_MIN,
        ATOMIC_MAX,
        ATOMIC_AND,
        ATOMIC_OR,
        ATOMIC_XOR,
        ATOMIC_EXCH,
        ATOMIC_CAS,
        ATOMIC_INC,
        ATOMIC_DEC
};
enum shuffle_kind { SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_BFLY, SHUFFLE_IDX };
enum vote_kind { VOTE_ALL, VOTE_ANY, VOTE_UNI, VOTE_BALLOT };
enum barrier_kind { BARRIER_SYNC, BARRIER_ARRIVE, BARRIER_POPC, BARRIER_AND, BARRIER_OR };
/* Special registers: SPECIAL_TID_X and so on. */
enum special_kind {
#define SPECIAL(name, id, bits) SPECIAL_##id,
#include "sim/ptx/specials.def"
};
enum ptx_compare { COMBINE_NONE, COMBINE_AND, COMBINE_OR, COMBINE_XOR };
enum ptx_round { ROUND_DEFAULT, ROUND_NEAREST, ROUND_ZERO, ROUND_DOWN, ROUND_UP };

struct ptx_insn {
        uint16_t op;
        uint8_t size;       /* memory: bytes of an element */
        uint8_t count;      /* memory: elements of the vector */
        uint8_t space;      /* enum ptx_space */
        uint8_t sub;        /* kind within the operation, such as enum atomic_kind */
        uint8_t flags;      /* bits FLAG_... */
        uint8_t type;       /* enum ptx_type */
        uint32_t guard;     /* slot of the guard predicate, or NO_SLOT */
        uint32_t guard_not; /* ~0 for a negated guard, otherwise 0 */
        uint32_t r[6];      /* slots: the destinations, and the sources after them */
        int64_t offset;     /* memory: added to the address; branch: target */
        uint32_t cache;     /* memory: number of the range cache; switch: table; call: site */
        uint32_t line;
};

#define FLAG_SIGNED    1 /* loads: extend the sign */
#define FLAG_WIDE      2 /* loads and stores: the register has 64-bit lanes */
#define FLAG_ADDRESS32 4 /* the address register has 32-bit lanes */
#define FLAG_SAT       8
#define FLAG_FTZ       16
#define FLAG_NOT       32 /* setp: negate the combined predicate; bar.red: negate the input */
#define FLAG_CARRY_IN  64
#define FLAG_CARRY_OUT 128

/* A slot that is filled when a frame is made. */
enum constant_kind {
        CONSTANT_VALUE,
        CONSTANT_PRED,
        CONSTANT_VARIABLE,     /* address of variable `index`, plus value */
        CONSTANT_SHARED,       /* static shared memory of the module, at offset value */
        CONSTANT_DYNAMIC,      /* address of dynamic shared memory, plus value */
        CONSTANT_LOCAL,        /* address of the frame's local memory, plus value */
        CONSTANT_PARAM,        /* `index` bytes of the kernel's parameters, at offset value */
        CONSTANT_FUNCTION,     /* handle of function `index` */
        CONSTANT_SHARED_ENTRY, /* static shared memory of an entry, after that of the module */
};

struct ptx_constant {
        uint64_t value;
        uint32_t slot;
        uint32_t index;
        uint8_t kind;  /* enum constant_kind */
        uint8_t bits;  /* bits of a lane: 32, 64, or 1 for a predicate */
        uint8_t flags; /* FLAG_SIGNED: extend a parameter by its sign */
};

/* A formal parameter of an entry or of a device function. */
struct function_param {
        /* Place in the launch's parameters (entry) or in local memory (device function). */
        uint32_t offset, bytes;
        uint32_t align;
        uint32_t slot; /* slot of a .reg parameter of a device function; otherwise NO_SLOT */
        uint8_t type;
};

struct ptx_function {
        struct ptx_kernel_info info; /* filled for entries; every function has the name */
        char *name;
        struct ptx_module *module;
        bool entry, defined;
        bool shared_used;     /* the function uses shared variables of module scope */
        uint32_t first, last; /* instructions [first, last) of the module */
        uint32_t frame_bytes;
        uint32_t local_bytes;
        uint32_t shared_bytes; /* shared memory declared in the body of an entry */
        uint32_t carry;        /* slot of the carry flags */
        struct ptx_parameter *parameters;
        struct function_param *params;
        unsigned params_n;
        struct function_param *returns;
        unsigned returns_n;
        struct ptx_constant *constants;
        size_t constants_n;
        uint32_t *callees; /* called functions, to find the shared memory that a kernel needs */
        size_t callees_n;
};

/* The handle that ptx.h returns is the function itself. */
struct ptx_kernel {
        struct ptx_function f;
};

/* The place of a call's argument or result in the caller. */
struct call_argument {
        uint32_t slot;  /* slot of a register, or NO_SLOT */
        uint32_t local; /* offset in the caller's local memory */
        uint32_t bytes;
};

struct call_site {
        uint32_t callee; /* number of the function; NO_INDEX: an indirect call */
        uint32_t arguments_n, returns_n;
        struct call_argument *argument; /* the arguments, followed by the results */
};

struct branch_table {
        uint32_t targets_n;
        uint32_t *target;
};

struct relocation {
        uint32_t variable; /* the variable whose initial bytes hold the address */
        uint32_t offset, bytes;
        uint32_t of; /* the variable to which the address points */
        int64_t addend;
};

struct ptx_module {
        char *text; /* a copy with a NUL, for error messages */
        size_t text_bytes;
        struct ptx_kernel **function;
        size_t functions_n;
        struct ptx_variable *variable;
        uint64_t *address;
        size_t variables_n;
        struct ptx_insn *insn;
        size_t insns_n;
        struct call_site *call;
        size_t calls_n;
        struct branch_table *table;
        size_t tables_n;
        struct relocation *relocation;
        size_t relocations_n;
        uint32_t shared_bytes; /* .shared variables of module scope */
        uint32_t caches_n;
};

/* The addresses of one variable or of one allocation. */
struct range {
        uint64_t start, end;
        uint8_t *pointer; /* host address of start */
};

/* One function activation of some lanes of a warp. Frames form a tree by call stack: two lanes
 * share a frame if, and only if, they have the same call stack. */
struct frame {
        struct frame *parent, *child, *sibling;
        const struct ptx_function *function;
        uint32_t site_pc; /* the calling instruction in the parent */
        uint32_t depth;
        uint64_t local_start; /* local address of this frame's local memory */
        uint8_t *local;       /* local memory of all lanes: WARP_LANES times local_bytes */
        uint8_t *regs;
};

enum fragment_state { FRAGMENT_READY, FRAGMENT_WARP_WAIT, FRAGMENT_BARRIER };

/* Lanes of a warp that are at the same instruction. */
struct fragment {
        struct frame *frame;
        uint32_t pc;
        uint32_t mask;
        uint32_t barrier; /* number of the barrier at which the lanes wait */
        enum fragment_state state;
};

struct block;
struct run;

#define TIMER_READS  64U    /* readings of the time in a step that show that the warp waits */
#define TIMER_NAP_NS 50000U /* sleep of a kernel that waits for a time */

struct warp {
        /* Registers and lanes of the current instruction. The operations of ops.def use only these
         * fields. */
        uint8_t *regs;
        uint32_t mask;

        struct fragment current; /* the running fragment, which is not in `fragment` */
        uint32_t limit;          /* instruction at which the next fragment of the frame waits */
        bool yield;              /* the current fragment has ended, or is blocked or asleep */
        bool asleep;             /* the last step ended in nanosleep, or only read the time */
        uint32_t timer_reads;    /* in this step */
        struct frame *root;
        struct block *block;
        struct run *run;
        uint32_t index; /* number of the warp in its block */
        uint32_t exists, exited;
        unsigned turn, frames_n;
        uint32_t fragments_n;
        struct fragment fragment[WARP_LANES + 1];
        struct warp *next_free;
};

struct barrier {
        bool active;
        uint32_t expected; /* number of threads; 0: all threads of the block */
        uint32_t ones;     /* number of threads that arrived with a true predicate */
        uint32_t *arrived; /* mask of arrived lanes for each warp */
};

struct block {
        struct run *run;
        uint32_t ctaid[3];
        uint32_t warps_n, warps_left;
        unsigned barriers_active;
        struct warp **warp;
        uint8_t *shared;
        uint32_t *arrived; /* storage for `arrived` of all barriers */
        struct barrier barrier[BARRIERS_MAX];
        struct block *next;
};

struct run {
        const struct ptx_module *module;
        const struct ptx_function *kernel;
        const struct ptx_launch *launch;
        const struct ptx_memory *memory;
        uint32_t threads, warps;
        uint32_t shared_bytes, dynamic_start;
        uint64_t timer_reads;
        uint32_t sleep_ns;              /* the shortest sleep of this pass */
        struct range *range;            /* cached range of each memory instruction */
        uint64_t epoch;                 /* epoch of the memory for which the ranges are valid */
        uint32_t (*tid)[3][WARP_LANES]; /* thread indices of each warp */
        struct warp *free_warps;
        struct block *free_blocks;
        size_t bytes; /* memory of all frames */
        uint8_t grid_workspace[64] __attribute__((aligned(64)));
        int failed; /* -errno of a failed launch; otherwise 0 */
        char *error;
};

/* Both functions return a slot of the current frame. */
static inline void *slot(const struct warp *w, uint32_t offset)
{
        return w->regs + offset;
}

static inline uint32_t *slot_pred(const struct warp *w, uint32_t offset)
{
        return (uint32_t *)(w->regs + offset);
}

typedef void lane_op(struct warp *w, const struct ptx_insn *in);

/* ---- lanes.c, compiled a second time for AVX2 ---- */
extern lane_op *const ptx_lanes_plain[OP_LANES_END];
extern lane_op *const ptx_lanes_avx2[OP_LANES_END];

/* ---- fragment.c ---- */
/* Makes the launch fail, unless it has failed before. lane NO_INDEX: no single thread caused it. */
void warp_fail(struct warp *w, const struct ptx_insn *in, unsigned lane, int error,
               const char *format, ...) __attribute__((format(printf, 5, 6)));

/* ---- memory.c ---- */
/* Drops cached ranges that a callback has made invalid. */
void run_forget_stale(struct run *run);

/* ---- warp.c, and warp_add() in fragment.c ---- */
int warp_start(struct run *run, struct block *block, uint32_t index);
void warp_release(struct warp *w); /* puts w on the run's list of free warps */
void warp_destroy(struct warp *w);
/* Runs up to `budget` instructions, fewer if no fragment can run. Returns the unused budget. */
uint32_t warp_step(struct warp *w, lane_op *const *lanes, uint32_t budget);
bool warp_ready(const struct warp *w);
void warp_add(struct warp *w, struct frame *frame, uint32_t pc, uint32_t mask,
              enum fragment_state state, uint32_t barrier);

#define WARP_OP(name, handler) lane_op handler;
#include "sim/ptx/warp_ops.def"

/* ---- sync.c ---- */
void block_check_barriers(struct block *b);

/* ---- frame.c ---- */
#define FUNCTION_HANDLE (UINT64_C(0x54) << 56)
int frame_new(struct warp *w, struct frame *parent, const struct ptx_function *f, uint32_t site_pc,
              struct frame **ret_frame);
void frame_free(struct run *run, struct frame *f);
void frame_call(struct warp *w, const struct ptx_insn *in, uint32_t mask);
void frame_return(struct warp *w, const struct ptx_insn *in, uint32_t mask);
uint8_t *frame_local(const struct frame *f, unsigned lane, uint64_t address, size_t bytes);
