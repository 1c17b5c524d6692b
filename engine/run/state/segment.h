/* A piece of a session's state as a file of the prompt cache: the layers' state for some tokens
 * after others, which are a separate piece. So pieces form a tree, and the common prefix of two
 * texts is stored once. A piece has at most SEGMENT_TOKENS tokens and begins at a multiple of that.
 *
 *     head, n ids, rows, copy, routes, sum
 *
 * rows: layer by layer of those that keep all rows, n rows in the exchange layout (device.h); copy:
 * optional, what the other layers need to continue after the last token (kv.h, copy_bytes); routes:
 * (n, n_layers, used), the experts each token chose; sum: SHA-256 of everything before it. A file
 * is named by the hash of its head's key, of its parent piece and of its tokens. Pure functions of
 * bytes: any thread. */
#ifndef ENGINE_RUN_SEGMENT_H
#define ENGINE_RUN_SEGMENT_H

#include "engine/base/digest.h"
#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SEGMENT_FORMAT 1 /* of the file; also incremented when computed bits change */
#define SEGMENT_TOKENS 256
#define SEGMENT_SUFFIX ".state"

/* Identity of a piece. */
struct segment_place {
    char key[DIGEST_HEX]; /* of everything but the tokens that state depends on (disk_sessions.c) */
    char parent[DIGEST_HEX]; /* name of the previous piece; empty: it is the first */
    int first, n;            /* tokens */
    int variant;             /* enum rope_variant */
    uint64_t strengths;      /* hash of the adapter strengths; 0: no adapters */
    bool copy;
    const int *ids; /* n */
};

/* Size of the layers' state, bytes. */
struct segment_shape {
    size_t row_bytes, routes_bytes; /* per token, of all layers */
    size_t copy_bytes;
    int n_vocab;
};

/* The parts of a file in memory; they point into it. */
struct segment {
    struct segment_place place;
    uint8_t *rows, *copy, *routes; /* copy NULL: none */
};

void segment_name(const struct segment_place *p, char name[DIGEST_HEX]);
size_t segment_bytes(const struct segment_shape *shape, int n, bool copy);
/* Bytes that segment_glance needs. */
size_t segment_head_bytes(void);
/* Writes head and ids into data, segment_bytes of them, zeroed; *s: the parts to be filled. */
void segment_begin(uint8_t *data, const struct segment_shape *shape, const struct segment_place *p,
                   struct segment *s);
/* Call when all is filled: writes the checksum. ERR_MEMORY. */
int segment_seal(uint8_t *data, size_t bytes, struct error *e);
/* Reads the head of a file, verifying only its name; ids are copied to `ids` (SEGMENT_TOKENS).
 * false: not a piece, or of another key. */
bool segment_glance(const void *data, size_t bytes, const char *key, const char *name,
                    struct segment_place *out, int *ids);
/* Verifies a whole file: that it is the piece of this name. data must be aligned as memory from
 * mem_alloc is. ERR_INPUT tells what is wrong; ERR_MEMORY. */
int segment_open(uint8_t *data, size_t bytes, const struct segment_shape *shape, const char *key,
                 const char *name, struct segment *out, struct error *e);

#endif
