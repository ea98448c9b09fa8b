/* lex.c: owns the division of PTX text into tokens. It must never look past the text's end. */
#include "sim/ptx/lex.h"

#include <stdlib.h>
#include <string.h>

static bool is_digit(char c)
{
        return c >= '0' && c <= '9';
}

static bool is_word_start(char c)
{
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' ||
               c == '%' || c == '.';
}

static bool is_word(char c)
{
        return is_word_start(c) || is_digit(c);
}

static void skip_blanks(struct lexer *l)
{
        while (l->at < l->end) {
                char c = *l->at;

                if (c == '\n') {
                        l->line++;
                        l->at++;
                } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
                        l->at++;
                } else if (c == '/' && l->at[1] == '/') {
                        while (l->at < l->end && *l->at != '\n')
                                l->at++;
                } else if (c == '/' && l->at[1] == '*') {
                        l->at += 2;
                        while (l->at < l->end && !(l->at[0] == '*' && l->at[1] == '/')) {
                                l->line += *l->at == '\n';
                                l->at++;
                        }
                        l->at = l->end - l->at > 2 ? l->at + 2 : l->end;
                } else {
                        return;
                }
        }
}

static int digit_of(char c)
{
        if (is_digit(c))
                return c - '0';
        if (c >= 'a' && c <= 'f')
                return c - 'a' + 10;
        if (c >= 'A' && c <= 'F')
                return c - 'A' + 10;
        return 99;
}

/* Parses all of [p, end) as digits of that base. Numbers beyond 64 bits are refused; the assembler
 * lets them wrap. */
static bool digits(const char *p, const char *end, int base, uint64_t *ret_value)
{
        uint64_t v = 0;

        if (p == end)
                return false;
        for (; p < end; p++) {
                int d = digit_of(*p);

                if (d >= base || __builtin_mul_overflow(v, (uint64_t)base, &v) ||
                    __builtin_add_overflow(v, (uint64_t)d, &v))
                        return false;
        }
        *ret_value = v;
        return true;
}

static bool decimal_float(const char *p, const char *end, uint64_t *ret_value)
{
        char buf[64], *stop;
        size_t n = (size_t)(end - p);
        double d;

        if (n >= sizeof(buf))
                return false;
        memcpy(buf, p, n);
        buf[n] = 0;
        d = strtod(buf, &stop);
        if (*stop)
                return false;
        memcpy(ret_value, &d, sizeof(d));
        return true;
}

static enum token_kind number(const char *p, const char *end, uint64_t *ret_value)
{
        size_t n = (size_t)(end - p);

        if (n > 2 && p[0] == '0') {
                char c = p[1] | 0x20;

                if (c == 'f')
                        return n == 10 && digits(p + 2, end, 16, ret_value) ? TOKEN_F32 : TOKEN_BAD;
                if (c == 'd')
                        return n == 18 && digits(p + 2, end, 16, ret_value) ? TOKEN_F64 : TOKEN_BAD;
        }
        if (memchr(p, '.', n) ||
            (!(n > 1 && (p[1] | 0x20) == 'x') && (memchr(p, 'e', n) || memchr(p, 'E', n))))
                return decimal_float(p, end, ret_value) ? TOKEN_F64 : TOKEN_BAD;
        if (n > 1 && (end[-1] == 'U' || end[-1] == 'u')) {
                end--;
                n--;
        }
        if (n > 2 && p[0] == '0' && (p[1] | 0x20) == 'x')
                return digits(p + 2, end, 16, ret_value) ? TOKEN_INTEGER : TOKEN_BAD;
        if (n > 2 && p[0] == '0' && (p[1] | 0x20) == 'b')
                return digits(p + 2, end, 2, ret_value) ? TOKEN_INTEGER : TOKEN_BAD;
        if (n > 1 && p[0] == '0')
                return digits(p + 1, end, 8, ret_value) ? TOKEN_INTEGER : TOKEN_BAD;
        return digits(p, end, 10, ret_value) ? TOKEN_INTEGER : TOKEN_BAD;
}

void lex_open(struct lexer *l, const char *text, uint64_t bytes)
{
        *l = (struct lexer){.at = text, .end = text + bytes, .line = 1};
}

void lex_next(struct lexer *l)
{
        struct token *t = &l->token;
        const char *p;

        skip_blanks(l);
        p = l->at;
        *t = (struct token){.kind = TOKEN_END, .text = p, .line = l->line};
        if (p >= l->end)
                return;
        if (is_word_start(*p)) {
                t->kind = TOKEN_WORD;
                while (p < l->end &&
                       (is_word(*p) || (p[0] == ':' && p[1] == ':' && is_word(p[2])) ||
                        (p[0] == ':' && p[-1] == ':' && is_word(p[1]))))
                        p++;
        } else if (is_digit(*p)) {
                while (p < l->end &&
                       (is_word(*p) || ((*p == '+' || *p == '-') && (p[-1] | 0x20) == 'e' &&
                                        is_digit(p[1]) && (l->at[1] | 0x20) != 'x' &&
                                        (l->at[1] | 0x20) != 'f' && (l->at[1] | 0x20) != 'd')))
                        p++;
                t->kind = number(t->text, p, &t->value);
        } else if (*p == '"') {
                const char *q = ++p;

                while (q < l->end && *q != '"' && *q != '\n')
                        q++;
                t->kind = q < l->end && *q == '"' ? TOKEN_STRING : TOKEN_BAD;
                t->text = p;
                t->length = (uint32_t)(q - p);
                l->at = q < l->end ? q + 1 : q;
                return;
        } else {
                t->kind = TOKEN_PUNCTUATION;
                p++;
        }
        t->length = (uint32_t)(p - t->text);
        l->at = p;
}

void lex_skip_line(struct lexer *l)
{
        uint32_t line = l->token.line;

        while (l->line == line && l->at < l->end) {
                l->line += *l->at == '\n';
                l->at++;
        }
        lex_next(l);
}

bool lex_is_word(const struct lexer *l, const char *word)
{
        size_t n = strlen(word);

        return l->token.kind == TOKEN_WORD && l->token.length == n &&
               memcmp(l->token.text, word, n) == 0;
}
