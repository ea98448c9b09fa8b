/* lex.h: PTX text to tokens. Nothing is copied: tokens point into the text, which must end with a
 * NUL. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum token_kind {
        TOKEN_END,
        TOKEN_WORD, /* names, directives (".reg"), whole opcodes ("ld.global.u32") */
        TOKEN_INTEGER,
        TOKEN_F32,         /* 0f...: value holds the bits */
        TOKEN_F64,         /* 0d..., 1.5: value holds the bits */
        TOKEN_STRING,      /* without its quotes */
        TOKEN_PUNCTUATION, /* text[0] */
        TOKEN_BAD,
};

struct token {
        enum token_kind kind;
        const char *text;
        uint32_t length;
        uint32_t line;
        uint64_t value;
};

struct lexer {
        const char *at, *end;
        uint32_t line;
        struct token token; /* the current one */
};

void lex_open(struct lexer *l, const char *text, uint64_t bytes);
void lex_next(struct lexer *l);
void lex_skip_line(struct lexer *l); /* the next token is the first of a later line */

static inline bool lex_is(const struct lexer *l, char punctuation)
{
        return l->token.kind == TOKEN_PUNCTUATION && l->token.text[0] == punctuation;
}

bool lex_is_word(const struct lexer *l, const char *word);
