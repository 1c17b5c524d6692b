/* Data of a loaded tokenizer: filled by the readers (tokenizer_build.h) and byte_level.c, read by
 * tokenizer.c and detokenizer.c, included only by these. Both sources use the same tables, so that
 * one encoder serves tokenizer.json and GGUF. */
#ifndef ENGINE_TEXT_TOKENIZER_DATA_H
#define ENGINE_TEXT_TOKENIZER_DATA_H

#include "engine/base/error.h"
#include "engine/text/charsmap.h"
#include "engine/text/decoding.h"
#include "engine/text/pre_tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOKENIZER_MAX_IDS (1 << 22)
#define WORD_MARK "\xe2\x96\x81" /* U+2581, SentencePiece's visible space */

struct piece {
    const char *text; /* in the pool; NULL: no such id */
    uint32_t len;
    int32_t rank;  /* by score: lower merges first; INT32_MAX: never merged into */
    int16_t byte;  /* of a byte-fallback token, else -1 */
    bool in_model; /* the encoder may produce it from text */
    bool special;  /* omitted with skip_special */
};

struct added { /* a token recognised as a whole in the text */
    int id;
    const char *text;
    uint32_t len;
    bool lstrip, rstrip, single_word, normalized;
    bool control; /* frame of a conversation: never recognised in user text */
};

struct trie_node {
    int32_t child, sibling, added; /* 0, 0, -1: none; node 0 is the root */
    unsigned char byte;
};

struct trie {
    struct trie_node *nodes;
    int32_t n, capacity;
    int32_t first[256]; /* the root's children by byte */
};

struct merge { /* open addressing; left < 0: free */
    int32_t left, right, rank, id;
};

enum normalize_op {
    NORMALIZE_PREPEND,
    NORMALIZE_REPLACE,
    NORMALIZE_NFC,
    NORMALIZE_NFD,
    NORMALIZE_NFKC,
    NORMALIZE_NFKD,
    NORMALIZE_LOWER,
    NORMALIZE_CHARSMAP,      /* by grapheme cluster, as in `tokenizers` */
    NORMALIZE_CHARSMAP_LONG, /* the longest entry at each position, as in SentencePiece */
    NORMALIZE_STRIP,         /* blanks at the start (left) and end (right) */
    NORMALIZE_STRIP_ACCENTS, /* marks */
    NORMALIZE_NMT,           /* removes control characters, maps rare blanks to blanks */
    NORMALIZE_COLLAPSE,      /* collapses runs of blanks, removes those at the ends */
    NORMALIZE_PATTERN        /* replaces matches of `pattern` by `to` */
};

struct normalize_step {
    enum normalize_op op;
    const char *from, *to; /* in the pool */
    size_t from_len, to_len;
    struct pre_tokenizer *pattern; /* one expression, isolated */
    bool left, right;
};

/* Steps of tokenizer.json's decoder on a list of tokens. */
enum decode_op {
    DECODE_BYTES,     /* a byte token's byte; adjacent ones become one token from here on */
    DECODE_FUSE,      /* all tokens become one from here on */
    DECODE_METASPACE, /* `from` becomes a blank, in the first token it is removed */
    DECODE_REPLACE,   /* `from` becomes `to` in each token */
    DECODE_STRIP      /* removes `from`, one byte: so many at a token's start and end */
};

struct decode_step {
    enum decode_op op;
    const char *from, *to; /* in the pool */
    int from_len, to_len;
    int start, stop;
};

enum metaspace { METASPACE_NONE, METASPACE_NEVER, METASPACE_FIRST, METASPACE_ALWAYS };

struct tokenizer {
    /* pieces are bytes, and text is merged from bytes (GPT-2's kind) instead of characters */
    bool byte_level;
    struct piece *pieces;
    int n_pieces;
    char *pool; /* all text */
    size_t pool_len, pool_size;
    int32_t *index; /* hash of piece texts to ids; -1: free */
    uint32_t index_mask;
    /* NULL: merged by score (SentencePiece) instead of by a list (BPE) */
    struct merge *merges;
    uint32_t merge_mask;
    /* NULL: merged; else each piece's score, and text is split as in unigram.h */
    double *scores;
    double worst;          /* the lowest of them */
    struct trie words;     /* pieces that text may be split into, if there are scores */
    uint32_t longest;      /* bytes of the longest piece of the model */
    int32_t byte_ids[256]; /* -1: none */
    int unknown;           /* -1: unknown characters are dropped */
    bool fuse_unknown, byte_fallback, ignore_merges;
    /* a piece has this byte before a word mark: text must not be split there */
    bool crosses[256];

    struct added *added;
    int n_added;
    struct trie raw, normal; /* matched before and after normalisation */
    struct normalize_step *steps;
    int n_steps;
    struct charsmap charsmap; /* of the steps that need one */
    enum metaspace metaspace; /* pre-tokenizer of the SentencePiece kind */
    bool metaspace_split;
    struct pre_tokenizer *pre; /* of the others; NULL: text is not split */
    bool prefix_space;         /* a blank is prepended to a piece without one */

    struct decode_step decode[DECODE_STEPS_MAX]; /* none: the text is the pieces */
    int n_decode;
    int bos;
    bool add_bos;
    int last; /* special token behind a text that is not continued; -1: none */
    struct error notice; /* its text; empty: none */
};

int tokenizer_lookup(const struct tokenizer *t, const char *text, size_t len); /* any id or -1 */
uint64_t tokenizer_hash(const char *text, size_t len);
/* NULL: none */
const struct merge *tokenizer_merge(const struct tokenizer *t, int left, int right);
/* Replaces GPT-2's spelling of bytes in pieces (literal[id]: not that one) and rebuilds the index
 * by text; merges are read before that. ERR_MODEL: crafted collisions. */
int byte_level_decode(struct tokenizer *t, const bool *literal, struct error *e);
/* White_Space of Unicode. */
bool tokenizer_is_blank(uint32_t cp);
/* Adds a piece's text to the index; the first id with a text keeps it. */
int tokenizer_index(struct tokenizer *t, int id, struct error *e);
/* Applies the normalizer; mask (NULL allowed, then *out_mask is NULL) is transformed byte by byte.
 * mem_* results. */
int tokenizer_normalize(const struct tokenizer *t, const char *text, const unsigned char *mask,
                        size_t len, char **out, unsigned char **out_mask, size_t *out_len,
                        struct error *e);

#endif
