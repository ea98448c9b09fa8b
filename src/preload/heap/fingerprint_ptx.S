/* fingerprint_ptx.S: the text of fingerprint.ptx, as cuModuleLoadData wants it. */
        .section .rodata
        .globl fingerprint_ptx
        .hidden fingerprint_ptx
fingerprint_ptx:
        .incbin "fingerprint.ptx"
        .byte 0
        .size fingerprint_ptx, . - fingerprint_ptx
        .type fingerprint_ptx, %object
        .section .note.GNU-stack,"",%progbits
