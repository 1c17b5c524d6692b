/* Routing traces: which experts every token chose in every layer, with which weights, and if asked
 * for the router's scores. Two formats with the same content (moetop-lab(7)): JSON Lines, a line a
 * token and layer, and safetensors, a column a field. While a safetensors trace is written it is a
 * file of records, FILE.part, which is readable at any moment and becomes columns at its end.
 * Plain data. */
#ifndef APP_LAB_ROUTING_TRACE_H
#define APP_LAB_ROUTING_TRACE_H

#include "engine/base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRACE_VERSION 2 /* 1, without script, stopword and logprob and with one `by`, is read */
#define TRACE_LAYERS 1024
#define TRACE_EXPERTS 4096
#define TRACE_SLOTS 64

/* What holds for the whole trace. */
struct trace_head {
    int version;
    char model[256];
    uint64_t hash; /* struct model's */
    int layers, experts, slots;
    /* per layer: experts that its router chooses from, and how many it chooses; 0: it has none */
    uint16_t routed[TRACE_LAYERS], used[TRACE_LAYERS];
    bool scores, logprobs;
};

/* Who chose the experts of a token in a layer: its router; a recorded run; its router as an edit of
 * the layer changed it. Layers without a router: BY_ROUTER. */
enum trace_by { BY_ROUTER, BY_REPLAY, BY_EDITED, TRACE_BYS };
/* Of the text that a token stands for. */
enum trace_class {
    CLASS_SPECIAL, /* control tokens */
    CLASS_SPACE,   /* white space only */
    CLASS_WORD,    /* begins with a space and a letter */
    CLASS_PIECE,   /* a letter without a space: the inside of a word, or a text's first */
    CLASS_NUMBER,
    CLASS_PUNCTUATION,
    TRACE_CLASSES
};
/* Of a token's first letter, by Unicode's blocks; NONE: it has no letter, or not a whole one. */
enum trace_script {
    SCRIPT_NONE,
    SCRIPT_LATIN,
    SCRIPT_GREEK,
    SCRIPT_CYRILLIC,
    SCRIPT_HEBREW,
    SCRIPT_ARABIC,
    SCRIPT_DEVANAGARI,
    SCRIPT_THAI,
    SCRIPT_HANGUL,
    SCRIPT_KANA,
    SCRIPT_HAN,
    SCRIPT_OTHER,
    TRACE_SCRIPTS
};
/* Languages of which a token can be a stop word; 0: of none. */
enum { STOPWORD_NONE, TRACE_STOPWORDS = 8 };
/* As enum role; the last one: an evaluated text, which has no messages. */
enum { TRACE_ROLE_TEXT = 4, TRACE_ROLES };

extern const char *const trace_by_words[TRACE_BYS];
extern const char *const trace_class_words[TRACE_CLASSES];
extern const char *const trace_role_words[TRACE_ROLES];
extern const char *const trace_script_words[TRACE_SCRIPTS];
extern const char *const trace_stopword_words[TRACE_STOPWORDS]; /* "none", then ISO 639-1 */

/* sequence: counted from 0, a session's tokens from an empty one on; position: in it; message:
 * counted from 0, -1: none; answer: it was generated, else prompt; seed: of the answer's sampler;
 * logprob: natural logarithm of its probability by the tokens before it, at temperature 1, NAN: a
 * text's first, or not recorded */
struct trace_token {
    int64_t seed;
    int32_t sequence, position, token, message;
    float logprob;
    uint8_t role, answer, class, script, stopword;
};

/* The columns of a trace, in the order in which a record and a file hold them: name, type of
 * safetensors, bytes a value, values a token (of struct trace_head *h). Weights, scores and experts
 * are (layers, slots), (layers, experts), (layers, slots), by is (layers), one value a token in
 * version 1; empty slots hold the expert -1 and the
 * weight 0, layers without a router and experts beyond `routed` the score 0. */
/* clang-format off */
#define TRACE_COLUMNS(X)                                                    \
    X(SEED,     "seed",     "I64", 8, 1)                                    \
    X(SEQUENCE, "sequence", "I32", 4, 1)                                    \
    X(POSITION, "position", "I32", 4, 1)                                    \
    X(TOKEN,    "token",    "I32", 4, 1)                                    \
    X(MESSAGE,  "message",  "I32", 4, 1)                                    \
    X(LOGPROB,  "logprob",  "F32", 4, h->logprobs)                          \
    X(WEIGHTS,  "weights",  "F32", 4, (size_t)(h->layers * h->slots))       \
    X(SCORES,   "scores",   "F32", 4, h->scores ? (size_t)h->layers * (size_t)h->experts : 0) \
    X(EXPERTS,  "experts",  "I16", 2, (size_t)(h->layers * h->slots))       \
    X(ROLE,     "role",     "U8",  1, 1)                                    \
    X(ANSWER,   "answer",   "U8",  1, 1)                                    \
    X(BY,       "by",       "U8",  1, h->version < 2 ? 1 : (size_t)h->layers) \
    X(CLASS,    "class",    "U8",  1, 1)                                    \
    X(SCRIPT,   "script",   "U8",  1, h->version >= 2)                      \
    X(STOPWORD, "stopword", "U8",  1, h->version >= 2)
/* clang-format on */

enum trace_column {
#define X(name, word, type, bytes, values) COLUMN_##name,
    TRACE_COLUMNS(X)
#undef X
        TRACE_COLUMN_COUNT
};

struct trace_columns {
    const char *name[TRACE_COLUMN_COUNT], *type[TRACE_COLUMN_COUNT];
    size_t bytes[TRACE_COLUMN_COUNT]; /* of a token; 0: the trace has no such column */
    size_t at[TRACE_COLUMN_COUNT];    /* where it begins in a record */
    size_t record;                    /* bytes of a record, a multiple of 8 */
};

struct trace_columns trace_columns(const struct trace_head *h);
/* The shape of a column of n tokens as JSON. NULL: no memory. */
json_t *trace_column_shape(const struct trace_head *h, enum trace_column c, uint64_t n);
/* The head as JSON (NULL: no memory), and back. name: of the file, for errors. ERR_INPUT. */
json_t *trace_head_json(const struct trace_head *h);
int trace_head_read(struct trace_head *h, const json_t *o, const char *name, struct error *e);
/* 0: the traces are of models of one shape; ERR_INPUT says what differs. */
int trace_head_match(const struct trace_head *a, const char *a_name, const struct trace_head *b,
                     const char *b_name, struct error *e);

#endif
