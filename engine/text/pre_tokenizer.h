/* The pre-tokenizer of a byte-level tokenizer: regular expressions that split text into the pieces
 * within which tokens are merged. They come from GGUF's name for them (a row of pre_tokenizers.h)
 * or from tokenizer.json, where both expression and text may be hostile: every search has a limit,
 * and the total cost of all searches of a text is linear in its length. Owner: the creator of the
 * struct; once made it is immutable: any thread. A struct splitter belongs to one thread. */
#ifndef ENGINE_TEXT_PRE_TOKENIZER_H
#define ENGINE_TEXT_PRE_TOKENIZER_H

#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pre_tokenizer;

/* Handling of a match, in the terms of tokenizer.json. */
enum split_behavior {
    SPLIT_ISOLATED,
    SPLIT_REMOVED,
    SPLIT_CONTIGUOUS,
    SPLIT_MERGED_WITH_PREVIOUS,
    SPLIT_MERGED_WITH_NEXT
};

struct split {
    const char *pattern;
    size_t len;
    enum split_behavior behavior;
    bool literal; /* the pattern is a plain text, no expression */
    bool invert;  /* swaps matches and the text between them */
};

/* Properties of a model's kind of pre-tokenizer besides its expressions. */
enum {
    PRE_NFC = 1,   /* text is normalised to NFC first */
    PRE_BOS = 2,   /* raw text begins with BOS unless the file says otherwise */
    PRE_WHOLE = 4, /* a piece that is a token is not split, whatever the merges say */
};

#define PRE_TOKENIZER_GPT2 "gpt-2" /* tokenizer.json's ByteLevel with use_regex */
#define PRE_TOKENIZER_DEFAULT "default"

/* Appends a step; *p is created if NULL. ERR_MODEL: the expression cannot be used. */
int pre_tokenizer_add(struct pre_tokenizer **p, const struct split *s, struct error *e);
/* Adds the steps of a GGUF pre-tokenizer (tokenizer.ggml.pre). 1: unknown name; *flags gets the
 * row's PRE_*. */
int pre_tokenizer_add_named(struct pre_tokenizer **p, const char *name, size_t len, unsigned *flags,
                            struct error *e);
/* The first name whose row splits as p does and has these flags (PRE_BOS aside); NULL: none. */
const char *pre_tokenizer_name(const struct pre_tokenizer *p, unsigned flags, size_t *len);
/* Whether an expression of p may match empty text, or that is unknown. */
bool pre_tokenizer_may_be_empty(const struct pre_tokenizer *p);
void pre_tokenizer_free(struct pre_tokenizer *p);

/* Scratch for one text. */
struct splitter {
    const struct pre_tokenizer *pre;
    /* gets the pieces in order; step is called once per search */
    int (*piece)(void *ctx, const char *text, size_t len);
    int (*step)(void *ctx);
    void *ctx;
    struct error *e;
    bool matched;    /* while piece runs: the last step's expression matched the piece */
    uint64_t budget; /* steps left for expensive searches */
    void *match, *limits;
};

/* len: bytes of the whole text, of which splitter_run gets parts. The caller must have set pre,
 * piece, step, ctx and e. */
int splitter_begin(struct splitter *s, size_t len);
/* Any bytes; invalid UTF-8 is a piece by itself. ERR_INPUT: the expression takes too long. */
int splitter_run(struct splitter *s, const char *text, size_t len);
void splitter_end(struct splitter *s);

#endif
