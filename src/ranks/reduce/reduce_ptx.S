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
        text int8
        text uint8
        text int32
        text uint32
        text int64
        text uint64
        text float16
        text float32
        text float64
        text bfloat16
        text float8e4m3
        text float8e5m2
        .section .note.GNU-stack,"",%progbits
