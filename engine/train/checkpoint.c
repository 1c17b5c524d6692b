/* See checkpoint.h. Numbers are in native byte order. */
#include "engine/train/checkpoint.h"

#include "engine/base/file.h"
#include "engine/base/hash.h"
#include "engine/base/mem.h"
#include "engine/train/aside.h"

#include <string.h>
#include <unistd.h>

static const char magic[8] = "MTTRAIN1";

struct head {
    char magic[8];
    uint64_t run;    /* trainer_hash */
    uint64_t values; /* floats in each of the three arrays */
    uint64_t check;  /* hash of state and arrays */
    struct train_state state;
};

#define ARRAYS 3

/* Hashes eight bytes at a time: the files are large. */
static uint64_t hash_floats(uint64_t h, const float *x, size_t n)
{
    uint64_t word;
    size_t i = 0;

    for (; i + 2 <= n; i += 2) {
        memcpy(&word, x + i, sizeof word);
        h = hash_add(h, word);
    }
    return i < n ? hash_bytes(h, x + i, sizeof *x) : h;
}

static uint64_t check_of(const struct train_state *s, float *const arrays[ARRAYS], size_t n)
{
    uint64_t h = hash_bytes(HASH_START, &s->step, sizeof s->step);

    h = hash_bytes(hash_bytes(h, &s->grown, sizeof s->grown), &s->bound, sizeof s->bound);
    for (int i = 0; i < ARRAYS; i++)
        h = hash_floats(h, arrays[i], n);
    return h;
}

int checkpoint_write(const struct trainer *t, const char *path, struct error *e)
{
    const struct modules *m = trainer_modules(t);
    float *const arrays[ARRAYS] = {m->values, m->m1, m->m2};
    struct head head;
    struct aside a;
    int rc = aside_open(&a, path, e);

    if (rc < 0)
        return rc;
    memset(&head, 0, sizeof head);
    memcpy(head.magic, magic, sizeof magic);
    head.run = trainer_hash(t);
    head.values = m->n_values;
    head.state = trainer_state(t);
    head.check = check_of(&head.state, arrays, m->n_values);
    aside_write(&a, &head, sizeof head);
    for (int i = 0; i < ARRAYS; i++)
        aside_write(&a, arrays[i], m->n_values * sizeof(float));
    return aside_finish(&a, e);
}

static int damaged(const char *path, struct error *e)
{
    return error_set(e, ERR_MODEL,
                     "%s: the checkpoint is damaged; remove it to begin anew", path);
}

int checkpoint_read(struct trainer *t, const char *path, struct error *e)
{
    static const struct file_kind kind = {"checkpoint", (size_t)1 << 40, ERR_MODEL};
    const struct modules *m = trainer_modules(t);
    float *const arrays[ARRAYS] = {m->values, m->m1, m->m2};
    size_t bytes = m->n_values * sizeof(float), n;
    struct head head;
    char *text;
    int rc;

    if (access(path, F_OK))
        return 0;
    if ((rc = file_read(path, &kind, &text, &n, e)) < 0)
        return rc;
    if (n < sizeof head || memcmp(text, magic, sizeof magic) != 0) {
        mem_free(text);
        return damaged(path, e);
    }
    memcpy(&head, text, sizeof head);
    if (head.run != trainer_hash(t)) {
        mem_free(text);
        return error_set(e, ERR_USAGE,
                         "%s: is of a run with other data, settings, model or adapter; remove it "
                         "to begin anew, or give another --lora-out",
                         path);
    }
    if (head.values != m->n_values || n != sizeof head + ARRAYS * bytes) {
        mem_free(text);
        return damaged(path, e);
    }
    for (int i = 0; i < ARRAYS; i++)
        memcpy(arrays[i], text + sizeof head + (size_t)i * bytes, bytes);
    mem_free(text);
    if (head.check != check_of(&head.state, arrays, m->n_values))
        return damaged(path, e);
    trainer_go_on(t, head.state);
    return 1;
}
