/* exchange_ptx.S: the text of exchange.ptx, as cuModuleLoadData wants it. */
        .globl exchange_ptx
        .hidden exchange_ptx
        .type exchange_ptx, %object
        .section .rodata
exchange_ptx:
        .incbin "exchange.ptx"
        .byte 0
        .size exchange_ptx, . - exchange_ptx
        .section .note.GNU-stack,"",%progbits
