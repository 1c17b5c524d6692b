/* See control.h. */
#include "engine/adapter/control.h"

#include "engine/base/hash.h"
#include "engine/base/mem.h"
#include "engine/file/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "direction."

static int check(const struct weight_file *f, struct error *e)
{
    struct meta_value v = weight_file_meta(f, "general.architecture");

    if (weight_file_format(f) == WEIGHT_GGUF && v.type == META_STRING &&
        v.len == strlen("controlvector") && memcmp(v.s, "controlvector", v.len) == 0)
        return 0;
    return error_set(e, ERR_MODEL,
                     "%s: no control vector: a GGUF file whose general.architecture is "
                     "controlvector is expected",
                     weight_file_path(f));
}

static int add_tensor(struct control_vectors *c, const struct weight_file *f,
                      const struct tensor_view *t, float strength, struct error *e)
{
    const char *path = weight_file_path(f);
    char *end;
    long layer;
    float *to;

    if (strncmp(t->name, PREFIX, strlen(PREFIX)) != 0)
        return 0;
    layer = strtol(t->name + strlen(PREFIX), &end, 10);
    if (*end || end == t->name + strlen(PREFIX) || layer < 1)
        return error_set(e, ERR_MODEL, "%s: %.80s: a layer from 1 is expected behind the dot", path,
                         t->name);
    if (layer >= c->layers)
        return error_set(e, ERR_MODEL, "%s: %.80s: the model's last layer is %d", path, t->name,
                         c->layers - 1);
    if (t->type != DTYPE_F32 || t->packed || t->n_dims != 1 || t->dims[0] != c->hidden ||
        t->bytes != (size_t)c->hidden * sizeof(float))
        return error_set(e, ERR_MODEL, "%s: %.80s is not %d values in F32: of another model?", path,
                         t->name, c->hidden);
    to = c->values + (size_t)layer * (size_t)c->hidden;
    for (int i = 0; i < c->hidden; i++) {
        float v;

        memcpy(&v, (const char *)t->data + (size_t)i * sizeof v, sizeof v);
        to[i] = to[i] + v * strength;
        if (!isfinite(to[i]))
            return error_set(e, ERR_MODEL, "%s: %.80s has values that are not finite", path,
                             t->name);
    }
    c->at[layer] = to;
    return 0;
}

static int add_file(struct control_vectors *c, const struct adapter_request *asked, struct error *e)
{
    struct weight_file *f;
    int rc = weight_file_open(&f, asked->path, false, e), before = 0, after = 0;

    if (rc < 0)
        return rc;
    rc = check(f, e);
    for (size_t i = 0; i < weight_file_count(f) && rc == 0; i++) {
        before++;
        after += strncmp(weight_file_at(f, i)->name, PREFIX, strlen(PREFIX)) == 0;
        rc = add_tensor(c, f, weight_file_at(f, i), asked->strength, e);
    }
    if (rc == 0 && !after)
        rc = error_set(e, ERR_MODEL, "%s: none of its %d tensors is called direction.N",
                       asked->path, before);
    if (rc == 0)
        rc = weight_file_check(f, e);
    weight_file_close(f);
    return rc;
}

static uint64_t hash_of(const struct control_vectors *c)
{
    uint64_t h = HASH_START;

    for (int l = 0; l < c->layers; l++)
        if (c->at[l])
            h = hash_bytes(hash_add(h, (uint64_t)l), c->at[l], (size_t)c->hidden * sizeof(float));
    return h ? h : 1;
}

int control_vectors_open(struct control_vectors **out, const struct model *m,
                         const struct adapter_request *asked, int n, int first, int last,
                         struct error *e)
{
    struct control_vectors *c = mem_alloc(1, sizeof *c);
    int rc = 0;

    *out = NULL;
    if (!c)
        return error_set(e, ERR_MEMORY, "no memory for control vectors");
    c->layers = m->hp.n_layers;
    c->hidden = m->hp.hidden;
    c->at = mem_alloc((size_t)c->layers, sizeof *c->at);
    c->values = mem_alloc((size_t)c->layers * (size_t)c->hidden, sizeof *c->values);
    last = last ? last : c->layers - 1;
    if (!c->at || !c->values)
        rc = error_set(e, ERR_MEMORY, "no memory for control vectors");
    else if (first < 0 || last < first || last >= c->layers)
        rc = error_set(e, ERR_USAGE,
                       "--control-vector-layer-range %d %d: layers 1 to %d can be named", first,
                       last, c->layers - 1);
    for (int i = 0; i < n && rc == 0; i++)
        rc = add_file(c, &asked[i], e);
    if (rc < 0) {
        control_vectors_free(c);
        return rc;
    }
    for (int l = 0; l < c->layers; l++) {
        if (l < first || l > last)
            c->at[l] = NULL;
        c->used += c->at[l] != NULL;
    }
    c->hash = hash_of(c);
    *out = c;
    return 0;
}

uint64_t control_vectors_bytes(const struct control_vectors *c)
{
    return c ? (uint64_t)c->layers * (sizeof *c->at + (uint64_t)c->hidden * sizeof *c->values) : 0;
}

void control_vectors_free(struct control_vectors *c)
{
    if (!c)
        return;
    mem_free(c->at);
    mem_free(c->values);
    mem_free(c);
}

void control_vectors_add(const struct control_vectors *c, int layer, float *x, int rows)
{
    const float *v = c->at[layer];

    for (int r = 0; r < rows && v; r++, x += c->hidden)
        for (int i = 0; i < c->hidden; i++)
            x[i] = x[i] + v[i];
}
