/* kernels_ptx.S: the text of kernels.ptx, with the NUL that cuModuleLoadData needs. */
        .section .rodata
        .globl kernels_ptx
        .hidden kernels_ptx
kernels_ptx:
        .incbin "kernels.ptx"
        .byte 0
        .size kernels_ptx, . - kernels_ptx
        .type kernels_ptx, %object
        .section .note.GNU-stack,"",%progbits
