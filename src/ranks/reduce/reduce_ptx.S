/* reduce_ptx.S: the texts of reduce_<type>.ptx, as cuModuleLoadData wants them. */
        .macro text type
        .globl reduce_ptx_\type
        .hidden reduce_ptx_\type
        .type reduce_ptx_\type, %object
reduce_ptx_\type:
        .incbin "reduce_\type\().ptx"
        .byte 0
        .size reduce_ptx_\type, . - reduce_ptx_\type
        .endm

        .section .rodata
#define REDUCE_TYPE(name, bytes) text name
#include "reduce_types.def"
        .section .note.GNU-stack,"",%progbits
