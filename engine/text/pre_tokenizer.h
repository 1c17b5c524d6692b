/* The pre-tokenizer of a byte-level tokenizer: regular expressions that cut text into the stretches
 * within which tokens are merged. They come from GGUF's name for them (a row of pre_tokenizers.h)
 * or from tokenizer.json, where both expression and text may be hostile: every search has a limit,
 * and what all searches of a text may cost together grows no faster than the text. Owner: whoever
 * made the struct; once made it is immutable: any thread. A struct splitter belongs to one thread.
 */
#ifndef ENGINE_TEXT_PRE_TOKENIZER_H
#define ENGINE_TEXT_PRE_TOKENIZER_H

#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pre_tokenizer;

/* What becomes of a match, in the words of tokenizer.json. */
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
    bool literal; /* the pattern is a text, no expression */
    bool invert;  /* matches and what lies between them change places */
};

/* What a model's kind of pre-tokenizer brings along besides its expressions. */
enum {
    PRE_NFC = 1,   /* text is composed first */
    PRE_BOS = 2,   /* raw text begins with BOS unless the file says otherwise */
    PRE_WHOLE = 4, /* a stretch that is a token is taken whole, whatever the merges say */
};

#define PRE_TOKENIZER_GPT2 "gpt-2" /* tokenizer.json's ByteLevel with use_regex */
#define PRE_TOKENIZER_DEFAULT "default"

/* One more step at the end; *p is made when NULL. ERR_MODEL: the expression cannot be used. */
int pre_tokenizer_add(struct pre_tokenizer **p, const struct split *s, struct error *e);
/* Adds the steps of a GGUF pre-tokenizer (tokenizer.ggml.pre). 1: no row has that name; *flags gets
 * the row's PRE_*. */
int pre_tokenizer_add_named(struct pre_tokenizer **p, const char *name, size_t len, unsigned *flags,
                            struct error *e);
/* The first name whose row cuts as p does and has these flags (PRE_BOS aside); NULL: none. */
const char *pre_tokenizer_name(const struct pre_tokenizer *p, unsigned flags, size_t *len);
/* An expression of p may match where there is no text, or that is not known. */
bool pre_tokenizer_may_be_empty(const struct pre_tokenizer *p);
void pre_tokenizer_free(struct pre_tokenizer *p);

/* Scratch of one text. */
struct splitter {
    const struct pre_tokenizer *pre;
    /* gets the stretches in order; step is called once a search */
    int (*piece)(void *ctx, const char *text, size_t len);
    int (*step)(void *ctx);
    void *ctx;
    struct error *e;
    bool matched;    /* while piece runs: the last step's expression matched that */
    uint64_t budget; /* steps that expensive searches may still take */
    void *match, *limits;
};

/* len: bytes of the whole text, of which splitter_run gets parts. The caller has set pre, piece,
 * step, ctx and e. */
int splitter_begin(struct splitter *s, size_t len);
/* Any bytes; what is no UTF-8 is a stretch of its own. ERR_INPUT: the expression takes too long. */
int splitter_run(struct splitter *s, const char *text, size_t len);
void splitter_end(struct splitter *s);

#endif
