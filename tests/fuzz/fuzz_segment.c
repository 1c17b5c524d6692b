/* Fuzz target: a file of the prompt cache. The name is made of what the file itself says, so that
 * the sums behind it are reached: either nothing is believed, or every part lies within the file.
 */
#include "engine/base/mem.h"
#include "engine/run/state/segment.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int ok)
{
    if (!ok)
        abort();
}

/* The file's own name and key, where its head can be read at all. */
static void name_of(const uint8_t *data, size_t size, char *key, char name[DIGEST_HEX])
{
    struct segment_place p = {.n = 1};
    int ids[SEGMENT_TOKENS] = {0};
    uint32_t at[10];

    memcpy(p.key, data + 16, DIGEST_HEX - 1);
    memcpy(p.parent, data + 16 + DIGEST_HEX - 1, DIGEST_HEX - 1);
    memcpy(at, data + 16 + 2 * (DIGEST_HEX - 1), sizeof at);
    memcpy(key, p.key, DIGEST_HEX);
    name[0] = 0;
    if (at[2] < 1 || at[2] > SEGMENT_TOKENS ||
        size < segment_head_bytes() - sizeof ids + at[2] * sizeof *ids)
        return;
    memcpy(ids, data + segment_head_bytes() - sizeof ids, at[2] * sizeof *ids);
    p.first = (int)at[1];
    p.n = (int)at[2];
    p.variant = (int)at[3];
    p.copy = at[4] != 0;
    memcpy(&p.strengths, at + 8, sizeof p.strengths);
    p.ids = ids;
    segment_name(&p, name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct segment_shape shape = {
        .row_bytes = 24, .routes_bytes = 6, .copy_bytes = 40, .n_vocab = 100};
    struct segment_place place;
    struct segment s;
    struct error e = {0};
    char key[DIGEST_HEX] = "", name[DIGEST_HEX] = "";
    int ids[SEGMENT_TOKENS], rc;
    uint8_t *copy;

    if (size < segment_head_bytes() - SEGMENT_TOKENS * sizeof(int))
        return 0;
    name_of(data, size, key, name);
    if (segment_glance(data, size, key, name, &place, ids))
        must(place.n >= 1 && place.n <= SEGMENT_TOKENS && place.first % SEGMENT_TOKENS == 0);
    copy = mem_alloc(size, 1);
    memcpy(copy, data, size);
    rc = segment_open(copy, size, &shape, key, name, &s, &e);
    must(rc == 0 || (e.code < 0 && e.text[0]));
    if (rc == 0) {
        must(s.rows + (size_t)s.place.n * shape.row_bytes <= copy + size);
        must(!s.copy || s.copy + shape.copy_bytes <= copy + size);
        must(s.routes + (size_t)s.place.n * shape.routes_bytes <= copy + size);
    }
    mem_free(copy);
    return 0;
}
