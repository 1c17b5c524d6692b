/* See profile_file.h. */
#include "app/setup/profile_file.h"

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"
#include "engine/file/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHAPE_MAX 4096

static const struct file_kind kind = {"profile", (size_t)256 << 20, ERR_INPUT};

void profile_facts_release(struct profile_facts *facts)
{
    mem_free(facts->expert_ns);
    facts->expert_ns = NULL;
}

static void put_text(struct strbuf *b, const char *s)
{
    strbuf_putc(b, '"');
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            strbuf_putc(b, '\\');
        if ((unsigned char)*s < 0x20)
            strbuf_printf(b, "\\u%04x", (unsigned char)*s);
        else
            strbuf_putc(b, *s);
    }
    strbuf_putc(b, '"');
}

static void put_row(struct strbuf *b, const char *name, const double *v, int n, const char *format)
{
    strbuf_printf(b, "     \"%s\": [", name);
    for (int i = 0; i < n; i++) {
        strbuf_puts(b, i ? ", " : "");
        strbuf_printf(b, format, v[i]);
    }
    strbuf_puts(b, "],\n");
}

static void put_figures(struct strbuf *b, const struct usage_layer *s)
{
    strbuf_printf(
        b,
        "\"entropy_bits\": %.4f, \"entropy_share\": %.4f, \"imbalance\": %.3f, \"unused\": %.4f, "
        "\"token_overlap\": %.4f, "
        "\"token_overlap_chance\": %.4f, \"layer_overlap\": %.4f, \"layer_overlap_chance\": %.4f",
        s->entropy, s->entropy_share, s->imbalance, s->unused, s->overlap, s->overlap_chance,
        s->below, s->below_chance);
}

int profile_json(const struct usage *u, const struct profile_facts *facts, char **text, size_t *len,
                 struct error *e)
{
    struct strbuf b = {0};
    struct usage_layer mean = usage_mean(u);

    strbuf_puts(&b, "{\"format\": \"moetop-profile\", \"version\": 1,\n \"model\": {\"name\": ");
    put_text(&b, facts->model);
    strbuf_puts(&b, ", \"type\": ");
    put_text(&b, facts->type);
    strbuf_printf(&b,
                  ", \"hash\": \"%016llx\", \"layers\": %d, \"experts\": %d, \"experts_used\": "
                  "%d},\n \"source\": ",
                  (unsigned long long)facts->hash, u->n_layers, u->n_experts, u->n_used);
    put_text(&b, facts->source);
    strbuf_puts(&b, ", \"read_as\": ");
    put_text(&b, facts->read_as);
    strbuf_printf(&b, ", \"tokens\": %llu,\n \"devices\": [", (unsigned long long)u->tokens);
    for (int d = 0; d < facts->n_devices; d++) {
        strbuf_puts(&b, d ? ", {\"name\": " : "{\"name\": ");
        put_text(&b, facts->devices[d].name);
        strbuf_printf(&b, ", \"expert_us\": %.3f}", facts->devices[d].expert_ns * 1e-3);
    }
    strbuf_puts(&b, "],\n \"mean\": {");
    put_figures(&b, &mean);
    strbuf_puts(&b, "},\n \"layers\": [\n");
    for (int l = 0; l < u->n_layers; l++) {
        struct usage_layer s = usage_layer(u, l);

        strbuf_printf(&b, "    {\"layer\": %d,\n", l);
        if (u->routed[l] != u->n_experts || u->called[l] != u->n_used)
            strbuf_printf(&b, "     \"routed\": %d, \"called\": %d,\n", u->routed[l], u->called[l]);
        put_row(&b, "counts", u->count + l * u->n_experts, u->n_experts, "%.0f");
        put_row(&b, "weights", u->weight + l * u->n_experts, u->n_experts, "%.4f");
        if (facts->expert_ns) {
            strbuf_puts(&b, "     \"expert_us\": [");
            for (int x = 0; x < u->n_experts; x++)
                strbuf_printf(&b, "%s%.3f", x ? ", " : "",
                              facts->expert_ns[l * u->n_experts + x] * 1e-3);
            strbuf_puts(&b, "],\n");
        }
        strbuf_puts(&b, "     ");
        put_figures(&b, &s);
        strbuf_puts(&b, l + 1 < u->n_layers ? "},\n" : "}\n");
    }
    strbuf_puts(&b, " ]}\n");
    if (b.failed) {
        strbuf_release(&b);
        return error_set(e, ERR_MEMORY, "out of memory for the profile");
    }
    *text = strbuf_take(&b, len);
    return 0;
}

static int int_of(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);

    return json_is_integer(v) && json_integer_value(v) > 0 && json_integer_value(v) <= SHAPE_MAX
               ? (int)json_integer_value(v)
               : 0;
}

static int read_numbers(const json_t *a, double *out, int n)
{
    if (!json_is_array(a) || json_array_size(a) != (size_t)n)
        return -1;
    for (int i = 0; i < n; i++) {
        const json_t *v = json_array_get(a, (size_t)i);

        if (!json_is_number(v) || !(json_number_value(v) >= 0) || json_number_value(v) > 1e15)
            return -1;
        out[i] = json_number_value(v);
    }
    return 0;
}

/* Where the layer differs from the file's description of the model. */
static void read_routed(struct usage *u, int layer, const json_t *o)
{
    if (!json_object_get(o, "routed"))
        return;
    u->routed[layer] = int_of(o, "routed") < u->n_experts ? int_of(o, "routed") : u->n_experts;
    u->called[layer] = int_of(o, "called") < u->n_used ? int_of(o, "called") : u->n_used;
}

static void copy_text(const json_t *o, const char *key, char *out, size_t size)
{
    const char *s = json_string_value(json_object_get(o, key));

    snprintf(out, size, "%s", s ? s : "");
}

/* Adds the rows of (layers, experts) to the counts. */
static int add_counts(struct usage *u, const json_t *layers, double *row, const char *path,
                      struct error *e)
{
    for (int l = 0; l < u->n_layers; l++) {
        if (json_array_size(layers) != (size_t)u->n_layers ||
            read_numbers(json_array_get(layers, (size_t)l), row, u->n_experts) < 0)
            return error_set(e, ERR_INPUT,
                             "%s: damaged: logical_count is no array of %d layers of %d counts",
                             path, u->n_layers, u->n_experts);
        for (int x = 0; x < u->n_experts; x++)
            u->count[l * u->n_experts + x] += row[x];
    }
    return 0;
}

/* SGLang's expert distribution: logical_count, (layers, experts) or (steps, layers, experts)
 * (python/sglang/srt/eplb/expert_location.py, init_by_eplb). */
static int read_logical(struct usage *u, struct profile_facts *facts, const char *path,
                        const json_t *counts, struct error *e)
{
    bool steps = json_is_array(json_array_get(json_array_get(counts, 0), 0));
    const json_t *first = steps ? json_array_get(counts, 0) : counts;
    size_t layers = json_array_size(first), experts = json_array_size(json_array_get(first, 0));
    double most = 0, *row;
    int rc;

    if (!layers || !experts || layers > SHAPE_MAX || experts > SHAPE_MAX)
        return error_set(e, ERR_INPUT, "%s: damaged: logical_count is no array of layers of counts",
                         path);
    if (!(row = mem_alloc(experts, sizeof *row)))
        return error_set(e, ERR_MEMORY, "out of memory for the profile");
    if ((rc = usage_init(u, (int)layers, (int)experts, 1, e)) < 0) {
        mem_free(row);
        return rc;
    }
    for (size_t i = 0; i < (steps ? json_array_size(counts) : 1) && rc == 0; i++)
        rc = add_counts(u, steps ? json_array_get(counts, i) : counts, row, path, e);
    for (int l = 0; l < u->n_layers && rc == 0; l++) {
        double sum = 0;

        for (int x = 0; x < u->n_experts; x++)
            sum += u->count[l * u->n_experts + x];
        most = sum > most ? sum : most;
    }
    u->tokens = (uint64_t)most; /* calls, as in an imatrix */
    snprintf(facts->model, sizeof facts->model, "logical_count");
    snprintf(facts->source, sizeof facts->source, "%s", path);
    mem_free(row);
    if (rc < 0)
        usage_release(u);
    return rc;
}

static int read_json(struct usage *u, struct profile_facts *facts, const char *path,
                     struct error *e)
{
    json_t *root;
    int rc = json_read_file(&root, path, &kind, e);
    const json_t *model = json_object_get(root, "model"), *layers = json_object_get(root, "layers"),
                 *devices = json_object_get(root, "devices");
    const char *format = json_string_value(json_object_get(root, "format")),
               *hash = json_string_value(json_object_get(model, "hash"));

    if (rc < 0)
        return rc;
    if (json_is_array(json_object_get(root, "logical_count"))) {
        rc = read_logical(u, facts, path, json_object_get(root, "logical_count"), e);
        goto out;
    }
    if (!format || strcmp(format, "moetop-profile") != 0 ||
        json_integer_value(json_object_get(root, "version")) != 1 || !hash) {
        rc = error_set(
            e, ERR_INPUT,
            "%s: not an expert profile of this program (make one with --profile-experts)", path);
        goto out;
    }
    copy_text(model, "name", facts->model, sizeof facts->model);
    copy_text(model, "type", facts->type, sizeof facts->type);
    copy_text(root, "source", facts->source, sizeof facts->source);
    copy_text(root, "read_as", facts->read_as, sizeof facts->read_as);
    facts->hash = strtoull(hash, NULL, 16);
    for (size_t d = 0; d < json_array_size(devices) && d < PROFILE_DEVICES; d++) {
        copy_text(json_array_get(devices, d), "name", facts->devices[d].name,
                  sizeof facts->devices[d].name);
        facts->devices[d].expert_ns =
            json_number_value(json_object_get(json_array_get(devices, d), "expert_us")) * 1e3;
        facts->n_devices = (int)d + 1;
    }
    if (!int_of(model, "layers") || !int_of(model, "experts") || !int_of(model, "experts_used") ||
        int_of(model, "experts_used") > int_of(model, "experts") ||
        json_array_size(layers) != (size_t)int_of(model, "layers")) {
        rc = error_set(e, ERR_INPUT,
                       "%s: damaged: the sizes of the model are missing or do not fit the layers",
                       path);
        goto out;
    }
    rc = usage_init(u, int_of(model, "layers"), int_of(model, "experts"),
                    int_of(model, "experts_used"), e);
    if (rc < 0)
        goto out;
    u->tokens = (uint64_t)json_integer_value(json_object_get(root, "tokens"));
    for (int l = 0; l < u->n_layers && rc == 0; l++) {
        const json_t *o = json_array_get(layers, (size_t)l);

        read_routed(u, l, o);
        if (read_numbers(json_object_get(o, "counts"), u->count + l * u->n_experts, u->n_experts) <
                0 ||
            read_numbers(json_object_get(o, "weights"), u->weight + l * u->n_experts,
                         u->n_experts) < 0)
            rc = error_set(e, ERR_INPUT, "%s: damaged: layer %d has no %d counts and weights", path,
                           l, u->n_experts);
    }
    if (rc < 0)
        usage_release(u);
out:
    json_decref(root);
    return rc;
}

/* "blk.12.ffn_gate_exps.weight.counts" -> 12; -1: another tensor. */
static int counts_layer(const char *name)
{
    int layer, end = 0;

    if (sscanf(name, "blk.%d.ffn_gate_exps.weight.counts%n", &layer, &end) != 1 || !end ||
        name[end] || layer < 0 || layer >= SHAPE_MAX)
        return -1;
    return layer;
}

/* counts: F32, one per expert; each token adds one to every expert it uses. */
static int read_imatrix(struct usage *u, struct profile_facts *facts, const char *path,
                        struct error *e)
{
    struct weight_file *f;
    int layers = 0, experts = 0, rc = weight_file_open(&f, path, false, e);
    double most = 0;

    if (rc < 0)
        return rc;
    for (size_t i = 0; i < weight_file_count(f); i++) {
        const struct tensor_view *t = weight_file_at(f, i);
        int l = counts_layer(t->name);

        if (l >= 0 && t->type == DTYPE_F32 && t->bytes / 4 <= SHAPE_MAX) {
            layers = l + 1 > layers ? l + 1 : layers;
            experts = (int)(t->bytes / 4) > experts ? (int)(t->bytes / 4) : experts;
        }
    }
    if (!layers || !experts)
        rc = error_set(e, ERR_INPUT,
                       "%s: no expert counts in it (an imatrix of a mixture-of-experts model has "
                       "blk.N.ffn_gate_exps.weight.counts)",
                       path);
    else
        rc = usage_init(u, layers, experts, 1, e);
    for (size_t i = 0; i < weight_file_count(f) && rc == 0; i++) {
        const struct tensor_view *t = weight_file_at(f, i);
        int l = counts_layer(t->name);

        if (l < 0 || t->type != DTYPE_F32)
            continue;
        if ((int)(t->bytes / 4) != experts) {
            usage_release(u);
            rc = error_set(e, ERR_INPUT, "%s: layer %d has %zu experts, others %d", path, l,
                           t->bytes / 4, experts);
            break;
        }
        for (int x = 0; x < experts; x++) {
            float v;

            memcpy(&v, (const char *)t->data + 4 * (size_t)x, 4);
            u->count[l * experts + x] = v > 0 && isfinite(v) ? (double)v : 0;
        }
    }
    for (int l = 0; l < layers && rc == 0; l++) {
        double sum = 0;

        for (int x = 0; x < experts; x++)
            sum += u->count[l * experts + x];
        most = sum > most ? sum : most;
    }
    /* calls; converted to tokens once the model's n_used is known */
    u->tokens = rc == 0 ? (uint64_t)most : 0;
    snprintf(facts->model, sizeof facts->model, "imatrix");
    snprintf(facts->source, sizeof facts->source, "%s", path);
    weight_file_close(f);
    return rc;
}

/* ---- NumPy ---- */

/* The text behind 'key': of the head; NULL: there is none. */
static const char *npy_value(const char *head, const char *key)
{
    const char *at = strstr(head, key);

    return at ? at + strlen(key) + strspn(at + strlen(key), " ") : NULL;
}

static double npy_number(const char *type, const uint8_t *at)
{
    int64_t i8;
    int32_t i4;
    double f8;
    float f4;

    memcpy(&i4, at, sizeof i4);
    memcpy(&f4, at, sizeof f4);
    if (type[2] == '4')
        return type[1] == 'i' ? (double)i4 : (double)f4;
    memcpy(&i8, at, sizeof i8);
    memcpy(&f8, at, sizeof f8);
    return type[1] == 'i' ? (double)i8 : f8;
}

static int npy_counts(struct usage *u, const char *path, const char *type, const uint8_t *data,
                      struct error *e)
{
    size_t cells = (size_t)u->n_layers * (size_t)u->n_experts, size = (size_t)(type[2] - '0');
    double most = 0, sum = 0;

    for (size_t i = 0; i < cells; i++) {
        double v = npy_number(type, data + i * size);

        if (!isfinite(v) || v < 0)
            return error_set(e, ERR_INPUT, "%s: damaged: a count is negative or not finite", path);
        u->count[i] = v;
        sum = i % (size_t)u->n_experts ? sum + v : v;
        most = sum > most ? sum : most;
    }
    u->tokens = most < 1e15 ? (uint64_t)most : 0; /* calls, as in an imatrix */
    return 0;
}

/* A matrix (layers, experts), as DeepSeek's and vLLM's load balancers take it (numpy.lib.format,
 * versions 1 to 3; C order, little endian). */
static int read_npy(struct usage *u, struct profile_facts *facts, const char *path, struct error *e)
{
    const char *descr, *order, *shape;
    char *text = NULL, head[1024], type[4] = "";
    size_t size, n = 0, start;
    int rc = file_read(path, &kind, &text, &size, e), layers = 0, experts = 0;
    const uint8_t *b = (const uint8_t *)text;

    if (rc < 0)
        return rc;
    start = size > 6 && b[6] > 1 ? 12 : 10;
    if (size > start)
        n = b[8] | (size_t)b[9] << 8 |
            (start == 12 ? (size_t)b[10] << 16 | (size_t)b[11] << 24 : 0);
    if (size <= start || n >= sizeof head || n > size - start) {
        rc = error_set(e, ERR_INPUT, "%s: damaged: its head is cut off or too long", path);
        goto out;
    }
    memcpy(head, text + start, n);
    head[n] = 0;
    descr = npy_value(head, "'descr':");
    order = npy_value(head, "'fortran_order':");
    shape = npy_value(head, "'shape':");
    if (descr && descr[0] == '\'')
        snprintf(type, sizeof type, "%.3s", descr + 1);
    if (!shape || sscanf(shape, "(%5d , %5d )", &layers, &experts) != 2 || layers < 1 ||
        experts < 1 || layers > SHAPE_MAX || experts > SHAPE_MAX || !order ||
        strncmp(order, "False", 5) != 0 || type[0] != '<' || !strchr("if", type[1]) || !type[1] ||
        (type[2] != '4' && type[2] != '8')) {
        rc = error_set(e, ERR_INPUT,
                       "%s: no (layers, experts) matrix of <i4, <i8, <f4 or <f8 in C order: "
                       "numpy.save(FILE, numpy.ascontiguousarray(counts, '<i8')) writes one",
                       path);
        goto out;
    }
    if ((size - start - n) / (size_t)(type[2] - '0') < (size_t)layers * (size_t)experts) {
        rc = error_set(e, ERR_INPUT, "%s: damaged: it ends before its %d times %d counts", path,
                       layers, experts);
        goto out;
    }
    if ((rc = usage_init(u, layers, experts, 1, e)) < 0)
        goto out;
    if ((rc = npy_counts(u, path, type, b + start + n, e)) < 0)
        usage_release(u);
    snprintf(facts->model, sizeof facts->model, "a matrix of counts");
    snprintf(facts->source, sizeof facts->source, "%s", path);
out:
    mem_free(text);
    return rc;
}

int profile_spread(struct usage *u, const struct profile_facts *facts, const struct hparams *hp,
                   struct error *e)
{
    int routed = 0, most = 0, from = 0, rc;
    struct usage all;

    for (int l = 0; l < hp->n_layers; l++) {
        const struct ffn_shape *s = &hparams_layer(hp, l)->ffn;
        bool routes = s->kind != FFN_NONE && s->used > 0 && s->experts > 1;

        routed += routes;
        most = routes && s->experts > most ? s->experts : most;
    }
    if (facts->hash || !routed || (u->n_layers != routed && u->n_layers != hp->n_layers) ||
        (u->n_experts != most && u->n_experts != hp->n_experts) ||
        (u->n_layers == hp->n_layers && u->n_experts == hp->n_experts))
        return 0;
    if ((rc = usage_init(&all, hp->n_layers, hp->n_experts, u->n_used, e)) < 0)
        return rc;
    for (int l = 0; l < hp->n_layers; l++) {
        const struct ffn_shape *s = &hparams_layer(hp, l)->ffn;
        bool routes = s->kind != FFN_NONE && s->used > 0 && s->experts > 1;

        if (!routes && u->n_layers != hp->n_layers)
            continue;
        memcpy(all.count + (size_t)l * (size_t)hp->n_experts,
               u->count + (size_t)from++ * (size_t)u->n_experts,
               (size_t)u->n_experts * sizeof *all.count);
    }
    all.tokens = u->tokens;
    usage_release(u);
    *u = all;
    return 0;
}

int profile_read(struct usage *u, struct profile_facts *facts, const char *path, struct error *e)
{
    char magic[6] = "";
    int fd = file_open(path, &kind, e);
    ssize_t n = fd >= 0 ? read(fd, magic, sizeof magic) : 0;

    memset(facts, 0, sizeof *facts);
    memset(u, 0, sizeof *u);
    if (fd < 0)
        return fd;
    close(fd);
    if (n == sizeof magic && memcmp(magic, "\x93NUMPY", sizeof magic) == 0)
        return read_npy(u, facts, path, e);
    return n >= 4 && memcmp(magic, "GGUF", 4) == 0 ? read_imatrix(u, facts, path, e)
                                                   : read_json(u, facts, path, e);
}

int profile_check(const struct usage *u, const struct profile_facts *facts, const char *path,
                  const char *model, uint64_t hash, int n_layers, int n_experts, int n_used,
                  struct error *e)
{
    if (u->n_layers != n_layers || u->n_experts != n_experts)
        return error_set(
            e, ERR_INPUT,
            "%s: a profile of another model (%s: %d layers of %d experts); this one has %d of %d",
            path, facts->model, u->n_layers, u->n_experts, n_layers, n_experts);
    if (facts->hash && facts->hash != hash)
        return error_set(e, ERR_INPUT,
                         "%s: a profile of another model or quantisation (%s, %s); this is %s: "
                         "make one with --profile-experts",
                         path, facts->model, facts->type, model);
    if (facts->hash && u->n_used != n_used)
        return error_set(e, ERR_INPUT, "%s: a profile with %d experts a token; this model uses %d",
                         path, u->n_used, n_used);
    return 0;
}
