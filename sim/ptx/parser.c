/* parser.c: helpers of all parts of the parser: error messages, expected tokens, growing arrays. */
#include "sim/ptx/parser.h"

#include <stdarg.h>
#include <stdio.h>

int parser_fail(struct parser *p, const char *format, ...)
{
        uint32_t line = p->line ? p->line : p->lex.token.line;
        va_list ap;
        int n;

        if (p->error[0])
                return -EINVAL;
        n = snprintf(p->error, PTX_ERROR_MAX, "line %u: ", line);
        va_start(ap, format);
        (void)vsnprintf(p->error + n, PTX_ERROR_MAX - (size_t)n, format, ap);
        va_end(ap);
        return -EINVAL;
}

int parser_fail_insn(struct parser *p, const char *format, ...)
{
        char why[PTX_ERROR_MAX];
        va_list ap;

        va_start(ap, format);
        (void)vsnprintf(why, sizeof(why), format, ap);
        va_end(ap);
        return parser_fail(p, "%.*s: %s", (int)MIN(p->opcode_length, 80U), p->opcode, why);
}

int parser_expect(struct parser *p, char punctuation)
{
        if (!lex_is(&p->lex, punctuation)) {
                p->line = p->lex.token.line;
                if (p->lex.token.kind == TOKEN_END)
                        return parser_fail(p, "the text ends where '%c' belongs", punctuation);
                return parser_fail(p, "'%.*s' where '%c' belongs",
                                   (int)MIN(p->lex.token.length, 32U), p->lex.token.text,
                                   punctuation);
        }
        lex_next(&p->lex);
        return 0;
}
