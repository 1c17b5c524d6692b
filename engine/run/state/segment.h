/* A piece of a session's state as a file of the prompt cache: what the layers keep of some tokens
 * behind others, which are a piece of their own. So pieces form a tree, and what two texts begin
 * with lies there once. A piece has at most SEGMENT_TOKENS tokens and begins at a multiple of that.
 *
 *     head, n ids, rows, copy, routes, sum
 *
 * rows: layer by layer of those that keep all rows, n rows in the exchange layout (device.h);
 * copy: where there is one, what the other layers need to go on behind the last token (kv.h,
 * copy_bytes); routes: (n, n_layers, used), which experts each token chose; sum: SHA-256 of all
 * that stands before it. A file is named by the hash of its head's key, of the piece before it and
 * of its tokens. Pure functions of bytes: any thread. */
#ifndef ENGINE_RUN_SEGMENT_H
#define ENGINE_RUN_SEGMENT_H

#include "engine/base/digest.h"
#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SEGMENT_FORMAT 1 /* of the file; also raised when other bits are computed */
#define SEGMENT_TOKENS 256
#define SEGMENT_SUFFIX ".state"

/* What it is and where it belongs. */
struct segment_place {
    char key[DIGEST_HEX]; /* of everything but the tokens that state depends on (disk_sessions.c) */
    char parent[DIGEST_HEX]; /* name of the piece before it; empty: it is the first */
    int first, n;            /* tokens */
    int variant;             /* enum rope_variant */
    uint64_t strengths;      /* hash of those with which adapters count; 0: there are none */
    bool copy;
    const int *ids; /* n */
};

/* How much the model's layers keep, bytes. */
struct segment_shape {
    size_t row_bytes, routes_bytes; /* a token, of all layers */
    size_t copy_bytes;
    int n_vocab;
};

/* The parts of a file in memory; they point into it. */
struct segment {
    struct segment_place place;
    uint8_t *rows, *copy, *routes; /* copy NULL: it has none */
};

void segment_name(const struct segment_place *p, char name[DIGEST_HEX]);
size_t segment_bytes(const struct segment_shape *shape, int n, bool copy);
/* The bytes that segment_glance wants to see. */
size_t segment_head_bytes(void);
/* Head and ids into data, segment_bytes of them, zeroed; *s: where the rest goes. */
void segment_begin(uint8_t *data, const struct segment_shape *shape, const struct segment_place *p,
                   struct segment *s);
/* When all is there: its sum. ERR_MEMORY. */
int segment_seal(uint8_t *data, size_t bytes, struct error *e);
/* What the beginning of a file says it is, unproved but for its name; ids are copied to `ids`
 * (SEGMENT_TOKENS). false: something else, or of another key. */
bool segment_glance(const void *data, size_t bytes, const char *key, const char *name,
                    struct segment_place *out, int *ids);
/* A whole file, whose every byte is proved: that it is the piece of this name. data must be aligned
 * as memory from mem_alloc is. ERR_INPUT says what is wrong; ERR_MEMORY. */
int segment_open(uint8_t *data, size_t bytes, const struct segment_shape *shape, const char *key,
                 const char *name, struct segment *out, struct error *e);

#endif
