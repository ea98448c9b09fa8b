/* dl_entry.S: our dlsym() and dlopen(). Each must leave by a jump, never by a call: the C library derives the
 * meaning of RTLD_NEXT, and the run path that dlopen() searches, from the return address, which has to stay the
 * caller's. dlsym_route() and dlopen_route() (dl.c) say where to. No symbol version: an unversioned definition in
 * a preloaded library satisfies references to dlsym@GLIBC_2.2.5 and dlsym@GLIBC_2.34 alike.
 * Why: docs/decisions.md, "`dlopen` is intercepted to take RTLD_DEEPBIND out" and "aarch64 is built
 * from the same source". */
#define DEEPBIND 8 /* RTLD_DEEPBIND */

        .text
        .globl dlsym
        .globl dlopen
        .hidden dlsym_route
        .hidden dlopen_route

#if defined(__x86_64__)
        .macro leave_for route
        pushq %rdi
        .cfi_adjust_cfa_offset 8
        pushq %rsi
        .cfi_adjust_cfa_offset 8
        subq $8, %rsp
        .cfi_adjust_cfa_offset 8
        call \route
        addq $8, %rsp
        .cfi_adjust_cfa_offset -8
        popq %rsi
        .cfi_adjust_cfa_offset -8
        popq %rdi
        .cfi_adjust_cfa_offset -8
        jmp *%rax
        .endm

        .type dlsym, @function
        .p2align 4
dlsym:
        .cfi_startproc
        endbr64
        leave_for dlsym_route
        .cfi_endproc
        .size dlsym, . - dlsym

        .type dlopen, @function
        .p2align 4
dlopen:
        .cfi_startproc
        endbr64
        andl $~DEEPBIND, %esi
        leave_for dlopen_route
        .cfi_endproc
        .size dlopen, . - dlopen
#elif defined(__aarch64__)
        .macro leave_for route
        stp x29, x30, [sp, #-32]!
        .cfi_def_cfa_offset 32
        .cfi_offset 29, -32
        .cfi_offset 30, -24
        mov x29, sp
        stp x0, x1, [sp, #16]
        bl \route
        mov x16, x0 /* x16: the register an indirect branch may use towards "bti c" */
        ldp x0, x1, [sp, #16]
        ldp x29, x30, [sp], #32
        .cfi_restore 29
        .cfi_restore 30
        .cfi_def_cfa_offset 0
        br x16
        .endm

        .type dlsym, %function
        .p2align 4
dlsym:
        .cfi_startproc
        hint #34 /* bti c */
        leave_for dlsym_route
        .cfi_endproc
        .size dlsym, . - dlsym

        .type dlopen, %function
        .p2align 4
dlopen:
        .cfi_startproc
        hint #34
        and w1, w1, #~DEEPBIND
        leave_for dlopen_route
        .cfi_endproc
        .size dlopen, . - dlopen
#else
#error "dlsym() and dlopen() need entries for this processor"
#endif
        .section .note.GNU-stack, "", %progbits
