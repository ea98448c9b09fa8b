/* lex.h: divides PTX text into tokens. Tokens point into the text, which must end with a NUL. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum token_kind {
        TOKEN_END,
        TOKEN_WORD, /* names, directives (".reg"), whole opcodes ("ld.global.u32") */
        TOKEN_INTEGER,
        TOKEN_F32,         /* a number 0f...; value holds its bits */
        TOKEN_F64,         /* a number 0d... or 1.5; value holds its bits */
        TOKEN_STRING,      /* a string without its quotes */
        TOKEN_PUNCTUATION, /* the character text[0] */
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
        struct token token; /* the current token */
};

void lex_open(struct lexer *l, const char *text, uint64_t bytes);
void lex_next(struct lexer *l);
void lex_skip_line(struct lexer *l); /* skips to the first token of a later line */

static inline bool lex_is(const struct lexer *l, char punctuation)
{
        return l->token.kind == TOKEN_PUNCTUATION && l->token.text[0] == punctuation;
}

bool lex_is_word(const struct lexer *l, const char *word);
