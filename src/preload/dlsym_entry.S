/* dlsym_entry.S: our dlsym(). Must leave by a jump, never by a call: the C library derives the meaning
 * of RTLD_NEXT from the return address, which has to stay the caller's. dlsym_route() (dlsym.c) says
 * where to. No symbol version: an unversioned definition in a preloaded library satisfies references
 * to dlsym@GLIBC_2.2.5 and dlsym@GLIBC_2.34 alike. */
        .text
        .globl dlsym
        .hidden dlsym_route

#if defined(__x86_64__)
        .type dlsym, @function
        .p2align 4
dlsym:
        .cfi_startproc
        endbr64
        pushq %rdi
        .cfi_adjust_cfa_offset 8
        pushq %rsi
        .cfi_adjust_cfa_offset 8
        subq $8, %rsp
        .cfi_adjust_cfa_offset 8
        call dlsym_route
        addq $8, %rsp
        .cfi_adjust_cfa_offset -8
        popq %rsi
        .cfi_adjust_cfa_offset -8
        popq %rdi
        .cfi_adjust_cfa_offset -8
        jmp *%rax
        .cfi_endproc
        .size dlsym, . - dlsym
#elif defined(__aarch64__)
        .type dlsym, %function
        .p2align 4
dlsym:
        .cfi_startproc
        hint #34 /* bti c */
        stp x29, x30, [sp, #-32]!
        .cfi_def_cfa_offset 32
        .cfi_offset 29, -32
        .cfi_offset 30, -24
        mov x29, sp
        stp x0, x1, [sp, #16]
        bl dlsym_route
        mov x16, x0 /* x16: the register an indirect branch may use towards "bti c" */
        ldp x0, x1, [sp, #16]
        ldp x29, x30, [sp], #32
        .cfi_restore 29
        .cfi_restore 30
        .cfi_def_cfa_offset 0
        br x16
        .cfi_endproc
        .size dlsym, . - dlsym
#else
#error "dlsym() needs an entry for this processor"
#endif
        .section .note.GNU-stack, "", %progbits
