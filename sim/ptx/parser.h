/* parser.h: the parser's state, shared by parse.c (directives), symbols.c (names and slots),
 * operand.c and decode*.c (instructions). Functions return 0 or -errno unless said otherwise;
 * parser_fail() writes the error message. */
#pragma once

#include <errno.h>

#include "sim/ptx/half.h"
#include "sim/ptx/internal.h"
#include "sim/ptx/lex.h"

#define PARTS_MAX    16
#define OPERANDS_MAX 8
#define SCOPES_MAX   64
/* Limits on the memory that hostile text makes the parser allocate. */
#define REGISTERS_MAX      (UINT64_C(1) << 21)
#define FRAME_BYTES_MAX    (UINT64_C(1) << 26)
#define LOCAL_BYTES_MAX    (UINT64_C(1) << 20)
#define VARIABLE_BYTES_MAX (UINT64_C(1) << 30)

enum symbol_kind {
        SYMBOL_REGISTER,      /* a single register */
        SYMBOL_REGISTERS,     /* a family of registers, such as %r<100> */
        SYMBOL_LABEL,         /* value: number of the instruction */
        SYMBOL_PARAM,         /* parameter of an entry; value: its offset */
        SYMBOL_LOCAL,         /* value: offset in the frame's local memory */
        SYMBOL_SHARED,        /* shared memory of module scope; value: its offset */
        SYMBOL_SHARED_ENTRY,  /* shared memory of an entry; value: offset after the module's */
        SYMBOL_SHARED_EXTERN, /* dynamic shared memory */
        SYMBOL_VARIABLE,      /* value: number of the variable */
        SYMBOL_FUNCTION,      /* value: number of the function */
        SYMBOL_TABLE,         /* value: number of the branch table */
        SYMBOL_PROTOTYPE,
};

struct symbol {
        const char *name;
        uint32_t length, hash;
        uint32_t next; /* the next symbol in the bucket */
        uint8_t kind, type;
        uint32_t count; /* number of registers of a family, or bytes of a parameter */
        uint64_t value;
        uint32_t *slots; /* slot of each register; NO_SLOT until it is used */
};

struct scope {
        size_t symbols, fixups;
        uint32_t local;
};

struct fixup {
        const char *name;
        uint32_t length, line;
        uint32_t insn;         /* the branch that needs the label */
        uint32_t table, entry; /* the entry of a branch table that needs it instead */
};

enum operand_kind {
        OPERAND_NONE,
        OPERAND_REGISTER,
        OPERAND_NUMBER,
        OPERAND_ADDRESS, /* a symbol's address; see `constant`, `index` and `value` */
        OPERAND_SPECIAL,
        OPERAND_VECTOR,
        OPERAND_MEMORY, /* [base + offset] */
        OPERAND_NAME,   /* a label, function or table */
        OPERAND_SINK,   /* the operand _, which discards a result */
};

struct operand {
        enum operand_kind kind;
        enum ptx_type type; /* declared type of a register */
        uint32_t slot;      /* slot of a register */
        uint32_t second;    /* slot of p in an operand d|p */
        bool negated;
        enum token_kind number; /* kind of a number: TOKEN_INTEGER, TOKEN_F32 or TOKEN_F64 */
        uint64_t value;
        uint8_t constant; /* enum constant_kind */
        uint8_t special;
        uint32_t index;
        bool base_register;
        int64_t offset;
        unsigned count; /* number of elements of a vector */
        unsigned first; /* first element of a vector in parser.element */
        const struct symbol *symbol;
        const char *name;
        uint32_t length;
};

struct opcode_part {
        const char *text;
        uint32_t length;
};

struct parser {
        struct lexer lex;
        struct ptx_module *m;
        char *error;

        size_t functions_cap, variables_cap, insns_cap, calls_cap, tables_cap, relocations_cap;

        struct symbol *symbol;
        size_t symbols_n, symbols_cap;
        uint32_t bucket[1024];
        struct scope scope[SCOPES_MAX];
        unsigned scopes_n;
        struct fixup *fixup;
        size_t fixups_n, fixups_cap;
        uint64_t registers; /* number of registers declared so far */

        /* The function being parsed. */
        struct ptx_function *f;
        uint32_t f_index;
        uint32_t local, pred_slot, pred_left;
        size_t constants_cap, callees_cap;
        uint32_t *constant_map; /* hash table of constant numbers plus 1; 0: a free entry */
        size_t constant_map_n;

        /* The instruction being parsed. */
        uint32_t line;
        const char *opcode;
        uint32_t opcode_length;
        struct opcode_part part[PARTS_MAX];
        unsigned parts_n;
        uint32_t guard, guard_not;
        struct operand operand[OPERANDS_MAX];
        unsigned operands_n;
        struct operand element[OPERANDS_MAX * 4];
        unsigned elements_n;
};

int parser_fail(struct parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Fails with the opcode's text and the reason. */
int parser_fail_insn(struct parser *p, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
int parser_grow(void *array, size_t *cap, size_t need, size_t element);
int parser_expect(struct parser *p, char punctuation);

/* ---- symbols.c ---- */
int scope_push(struct parser *p);
int scope_pop(struct parser *p);
int symbol_add(struct parser *p, const char *name, uint32_t length, enum symbol_kind kind,
               struct symbol **ret_symbol);
struct symbol *symbol_find(struct parser *p, const char *name, uint32_t length);
/* Finds the slot of a declared register. Returns -ENOENT if there is no such register. */
int symbol_register(struct parser *p, const char *name, uint32_t length, enum ptx_type *ret_type,
                    uint32_t *ret_slot);
int slot_new(struct parser *p, enum ptx_type type, uint32_t *ret_slot);
int local_new(struct parser *p, uint64_t bytes, uint64_t align, uint32_t *ret_offset);
int constant_slot(struct parser *p, enum constant_kind kind, uint64_t value, uint32_t index,
                  unsigned bits, unsigned flags, uint32_t *ret_slot);
int fixup_add(struct parser *p, const char *name, uint32_t length, uint32_t insn, uint32_t table,
              uint32_t entry);

/* ---- operand.c ---- */
enum ptx_type type_named(const char *text, uint32_t length); /* TYPE_NONE: no such type */
int operands_parse(struct parser *p);
int operand_parse(struct parser *p, struct operand *ret_operand);
/* Finds the slot that holds the operand as a value of that type. A number becomes a constant. */
int operand_source(struct parser *p, const struct operand *o, enum ptx_type type,
                   uint32_t *ret_slot);
int operand_destination(struct parser *p, const struct operand *o, enum ptx_type type,
                        uint32_t *ret_slot);
/* Parses a constant expression: numbers with signs, + and -. */
int number_parse(struct parser *p, enum token_kind *ret_kind, uint64_t *ret_value);
int insn_emit(struct parser *p, enum ptx_op op, struct ptx_insn **ret_insn);

/* ---- decode*.c ---- */
/* Decodes the instruction whose parts and operands have been parsed. */
int decode_instruction(struct parser *p);
int decode_call(struct parser *p);
bool part_is(const struct parser *p, unsigned i, const char *text);
enum ptx_type part_type(const struct parser *p, unsigned i); /* TYPE_NONE: the part is no type */
int operands_want(struct parser *p, unsigned n);
int insn_emit_slots(struct parser *p, enum ptx_op op, const uint32_t *slots, unsigned n,
                    struct ptx_insn **ret_insn);
int decode_unknown_part(struct parser *p, unsigned i);
int decode_unknown_form(struct parser *p);
/* Accepts a register of any width, because loads, stores and cvt allow registers wider than their
 * type. */
int operand_any_register(struct parser *p, const struct operand *o, enum ptx_type *ret_type);

typedef int decoder(struct parser *p);
#define INSTRUCTION(name, decode) decoder decode;
#define FORM(name, mode, types, op)
#include "sim/ptx/ptx_instructions.def"
