/* See plan_file.h. libyaml's node table has line and column of every value, so every error names
 * its position. */
#include "app/setup/plan_file.h"

#include "app/common/paths.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/path.h"
#include "engine/base/size.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <yaml.h>

#define FILE_MAX ((size_t)1 << 20)
#define DEPTH_MAX 8
#define NUMBER_MOST 1000000

struct reading {
    const char *name;
    const struct plan_shape *shape;
    yaml_document_t doc;
    struct plan *plan;
    struct error *e;
};

static int complain(const struct reading *r, const yaml_node_t *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int complain(const struct reading *r, const yaml_node_t *at, const char *format, ...)
{
    char text[400];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return error_set(r->e, ERR_USAGE, "%s:%zu:%zu: %s", r->name, at->start_mark.line + 1,
                     at->start_mark.column + 1, text);
}

static yaml_node_t *node(struct reading *r, yaml_node_item_t i)
{
    return yaml_document_get_node(&r->doc, i);
}

/* NULL for anything but a scalar without zero bytes. */
static const char *scalar(const yaml_node_t *n)
{
    if (n->type != YAML_SCALAR_NODE ||
        strlen((const char *)n->data.scalar.value) != n->data.scalar.length)
        return NULL;
    return (const char *)n->data.scalar.value;
}

static const char *skip(const char *p)
{
    while (*p == ' ')
        p++;
    return p;
}

/* One item of a selection: all, 5, 3-7, first 4, last 25%. Marks it in set (n flags). Returns the
 * text after it, NULL: no such item. */
static const char *select_item(const char *p, int n, uint8_t *set, int *beyond)
{
    int from = 0, to = n - 1, count;

    p = skip(p);
    if (strncmp(p, "all", 3) == 0) {
        p += 3;
    } else if (strncmp(p, "first ", 6) == 0 || strncmp(p, "last ", 5) == 0) {
        bool last = *p == 'l';

        p = skip(p + (last ? 5 : 6));
        if (size_digits(&p, NUMBER_MOST, &count) < 0)
            return NULL;
        if (*p == '%') {
            p++;
            if (count > 100)
                return NULL;
            count = (count * n + 50) / 100;
        }
        if (count > n)
            *beyond = count - 1;
        from = last ? n - count : 0;
        to = last ? n - 1 : count - 1;
    } else {
        if (size_digits(&p, NUMBER_MOST, &from) < 0)
            return NULL;
        to = from;
        if (*p == '-') {
            p++;
            if (size_digits(&p, NUMBER_MOST, &to) < 0 || to < from)
                return NULL;
        }
        if (to >= n)
            *beyond = to;
    }
    for (int i = from < 0 ? 0 : from; i <= to && i < n; i++)
        set[i] = 1;
    return skip(p);
}

/* A selection as text ("0,2-3") or as a YAML sequence of such texts. */
static int select_node(struct reading *r, const yaml_node_t *value, const char *what, int n,
                       uint8_t *set)
{
    const char *text = scalar(value), *p = text;
    int beyond = -1;

    if (value->type == YAML_SEQUENCE_NODE) {
        for (yaml_node_item_t *i = value->data.sequence.items.start;
             i < value->data.sequence.items.top; i++) {
            const yaml_node_t *item = node(r, *i);
            int rc = item->type == YAML_SCALAR_NODE
                         ? select_node(r, item, what, n, set)
                         : complain(r, item, "%s: a number or a range is expected", what);

            if (rc < 0)
                return rc;
        }
        return 0;
    }
    while (p) {
        p = select_item(p, n, set, &beyond);
        if (p && !*p)
            break;
        p = p && *p == ',' ? p + 1 : NULL;
    }
    if (!p)
        return complain(r, value,
                        "%s: '%s' is no selection; write all, 5, 3-7, first 4, last 25%%, or "
                        "several with commas",
                        what, text ? text : "(this)");
    if (beyond >= 0)
        return complain(r, value, "%s: there is no number %d; this model has 0-%d", what, beyond,
                        n - 1);
    return 0;
}

static int device_node(struct reading *r, const yaml_node_t *value, int *device)
{
    const char *text = scalar(value);

    if (text && strcmp(text, "cpu") == 0) {
        *device = 0;
        return 0;
    }
    if (text && strcmp(text, "gpu") == 0 && r->shape->gpu) {
        *device = r->shape->gpu;
        return 0;
    }
    for (int i = 0; text && i < r->shape->n_devices; i++)
        if (strcmp(text, r->shape->devices[i]) == 0) {
            *device = i;
            return 0;
        }
    if (text && strcmp(text, "gpu") == 0)
        return complain(r, value, "device: there is no device beside the CPU here");
    return complain(r, value,
                    "device: '%s' is not here; write cpu, gpu, or a name that --list-devices shows",
                    text ? text : "(this)");
}

static int switch_node(struct reading *r, const yaml_node_t *value, bool *on)
{
    const char *text = scalar(value);

    *on = text && (strcmp(text, "yes") == 0 || strcmp(text, "true") == 0);
    return *on || (text && (strcmp(text, "no") == 0 || strcmp(text, "false") == 0))
               ? 0
               : complain(r, value, "stream: write yes or no");
}

struct rule {
    const yaml_node_t *layers, *experts, *device, *stream;
};

static int read_rule(struct reading *r, const yaml_node_t *n, bool experts, struct rule *rule)
{
    memset(rule, 0, sizeof *rule);
    if (n->type != YAML_MAPPING_NODE)
        return complain(r, n, "a rule is {layers: ..., %sdevice: ...}",
                        experts ? "experts: ..., " : "");
    for (yaml_node_pair_t *p = n->data.mapping.pairs.start; p < n->data.mapping.pairs.top; p++) {
        const yaml_node_t *key = node(r, p->key), *value = node(r, p->value);
        const char *name = scalar(key);
        const yaml_node_t **slot = !name                                     ? NULL
                                   : strcmp(name, "layers") == 0             ? &rule->layers
                                   : strcmp(name, "device") == 0             ? &rule->device
                                   : experts && strcmp(name, "experts") == 0 ? &rule->experts
                                   : experts && strcmp(name, "stream") == 0  ? &rule->stream
                                                                             : NULL;

        if (!slot)
            return complain(r, key, "'%s' is no key of a rule; there are layers, %sdevice%s",
                            name ? name : "(this)", experts ? "experts, " : "",
                            experts ? " and stream" : "");
        if (*slot)
            return complain(r, key, "'%s' is given twice", name);
        *slot = value;
    }
    return rule->device ? 0 : complain(r, n, "this rule names no device");
}

static int read_rules(struct reading *r, const yaml_node_t *list, bool experts)
{
    int layers = r->shape->n_layers, n_experts = r->shape->n_experts, rc = 0;
    uint8_t *set = mem_alloc((size_t)layers + (size_t)n_experts, 1),
            *of_layer = set ? set + layers : NULL;

    if (!set)
        return error_set(r->e, ERR_MEMORY, "out of memory for '%s'", r->name);
    if (list->type != YAML_SEQUENCE_NODE) {
        const char *nothing = scalar(list);

        mem_free(set);
        return nothing && !*nothing ? 0 : complain(r, list, "a list of rules is expected here");
    }
    for (yaml_node_item_t *i = list->data.sequence.items.start;
         rc == 0 && i < list->data.sequence.items.top; i++) {
        struct rule rule;
        int device = 0;
        bool stream = false;

        memset(set, 0, (size_t)layers + (size_t)n_experts);
        rc = read_rule(r, node(r, *i), experts, &rule);
        if (rc == 0)
            rc = device_node(r, rule.device, &device);
        if (rc == 0 && rule.stream)
            rc = switch_node(r, rule.stream, &stream);
        if (rc == 0 && stream && device == 0)
            rc = complain(
                r, rule.stream,
                "stream: the CPU has all experts; only those of another device can be streamed");
        if (rc == 0 && rule.layers)
            rc = select_node(r, rule.layers, "layers", layers, set);
        else
            memset(set, 1, (size_t)layers);
        if (rc == 0 && rule.experts)
            rc = select_node(r, rule.experts, "experts", n_experts, of_layer);
        else
            memset(of_layer, 1, (size_t)n_experts);
        for (int l = 0; rc == 0 && l < layers; l++) {
            if (set[l] && !experts)
                r->plan->attention[l] = (uint8_t)device;
            for (int x = 0; set[l] && experts && x < n_experts; x++)
                if (of_layer[x]) {
                    r->plan->experts[l * n_experts + x] = (uint8_t)device;
                    r->plan->streamed[l * n_experts + x] = stream;
                }
        }
    }
    mem_free(set);
    return rc;
}

static int read_shape(struct reading *r, const yaml_node_t *value)
{
    const char *text = scalar(value), *p = text;
    int layers, experts;

    if (!p || size_digits(&p, NUMBER_MOST, &layers) < 0 || *p++ != 'x' ||
        size_digits(&p, NUMBER_MOST, &experts) < 0 || *p)
        return complain(r, value, "shape: '%s': write layers x experts, for example 32x16",
                        text ? text : "(this)");
    if (layers != r->shape->n_layers || experts != r->shape->n_experts)
        return complain(r, value,
                        "shape: this plan is for %d layers of %d experts; the model has %d of %d",
                        layers, experts, r->shape->n_layers, r->shape->n_experts);
    return 0;
}

static int read_top(struct reading *r, const yaml_node_t *top)
{
    static const char *const keys[] = {"name", "shape", "attention", "experts", "head"};
    bool seen[5] = {false};
    int rc = 0, device = 0;

    if (top->type != YAML_MAPPING_NODE)
        return complain(r, top, "a plan has the keys name, shape, attention, experts, head");
    for (yaml_node_pair_t *p = top->data.mapping.pairs.start;
         p < top->data.mapping.pairs.top && rc == 0; p++) {
        const yaml_node_t *key = node(r, p->key), *value = node(r, p->value);
        const char *name = scalar(key);
        int k = 0;

        while (k < 5 && !(name && strcmp(name, keys[k]) == 0))
            k++;
        if (k == 5)
            return complain(
                r, key, "'%s' is no key of a plan; there are name, shape, attention, experts, head",
                name ? name : "(this)");
        if (seen[k])
            return complain(r, key, "'%s' is given twice", name);
        seen[k] = true;
        if (k == 0) {
            if (!scalar(value) || !*scalar(value))
                return complain(r, value, "name: a short text is expected");
            snprintf(r->plan->name, sizeof r->plan->name, "%s", scalar(value));
        }
        rc = k == 1   ? read_shape(r, value)
             : k == 2 ? read_rules(r, value, false)
             : k == 3 ? read_rules(r, value, true)
             : k == 4 ? device_node(r, value, &device)
                      : 0;
        if (k == 4 && rc == 0)
            r->plan->head = (uint8_t)device;
    }
    return rc;
}

/* First pass: only the depth. The loader's time grows with the square of the nesting, so a file of
 * brackets would hang it. */
static int check_depth(const char *text, size_t size, const char *name, struct error *e)
{
    yaml_parser_t parser;
    yaml_event_t ev;
    int depth = 0, rc = 0;
    bool end = false;

    if (!yaml_parser_initialize(&parser))
        return error_set(e, ERR_MEMORY, "out of memory for '%s'", name);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
    while (!end && rc == 0 && yaml_parser_parse(&parser, &ev)) {
        depth += ev.type == YAML_SEQUENCE_START_EVENT || ev.type == YAML_MAPPING_START_EVENT;
        depth -= ev.type == YAML_SEQUENCE_END_EVENT || ev.type == YAML_MAPPING_END_EVENT;
        if (depth > DEPTH_MAX)
            rc = error_set(e, ERR_USAGE, "%s:%zu:%zu: nested too deeply for a plan", name,
                           ev.start_mark.line + 1, ev.start_mark.column + 1);
        end = ev.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&ev);
    }
    yaml_parser_delete(&parser);
    return rc; /* syntax errors are reported by the loader */
}

int plan_file_parse(struct plan **out, const char *text, size_t size, const char *name,
                    const struct plan_shape *shape, struct error *e)
{
    struct reading r = {.name = name, .shape = shape, .e = e};
    yaml_parser_t parser;
    const yaml_node_t *top;
    int rc;

    *out = NULL;
    if ((rc = check_depth(text, size, name, e)) < 0)
        return rc;
    if (!yaml_parser_initialize(&parser))
        return error_set(e, ERR_MEMORY, "out of memory for '%s'", name);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
    if (!yaml_parser_load(&parser, &r.doc)) {
        rc = error_set(e, ERR_USAGE, "%s:%zu:%zu: %s", name, parser.problem_mark.line + 1,
                       parser.problem_mark.column + 1,
                       parser.problem ? parser.problem : "this is not YAML");
        yaml_parser_delete(&parser);
        return rc;
    }
    top = yaml_document_get_root_node(&r.doc);
    r.plan = plan_new(path_name(name), shape->n_layers, shape->n_experts);
    if (!r.plan)
        rc = error_set(e, ERR_MEMORY, "out of memory for '%s'", name);
    else
        rc = top ? read_top(&r, top) : error_set(e, ERR_USAGE, "%s:1:1: the file is empty", name);
    yaml_document_delete(&r.doc);
    yaml_parser_delete(&parser);
    if (rc < 0) {
        plan_free(r.plan);
        return rc;
    }
    *out = r.plan;
    return 0;
}

int plan_file_read(struct plan **out, const char *path, const struct plan_shape *shape,
                   struct error *e)
{
    static const struct file_kind kind = {"placement", FILE_MAX, ERR_USAGE};
    char *text;
    size_t n;
    int rc = file_read(path, &kind, &text, &n, e);

    *out = NULL;
    if (rc < 0)
        return rc;
    rc = plan_file_parse(out, text, n, path, shape, e);
    mem_free(text);
    return rc;
}

/* "0-3,7" of the numbers whose flag is set. */
static void print_ranges(FILE *f, const uint8_t *set, int n)
{
    const char *comma = "";

    for (int i = 0; i < n; i++) {
        int j = i;

        if (!set[i])
            continue;
        while (j + 1 < n && set[j + 1])
            j++;
        fprintf(f, j > i ? "%s%d-%d" : "%s%d", comma, i, j);
        comma = ",";
        i = j;
    }
}

static void print_attention(FILE *f, const struct plan *p, const struct plan_shape *shape,
                            uint8_t *set)
{
    for (int d = 1; d < shape->n_devices; d++) {
        int n = 0;

        for (int l = 0; l < p->n_layers; l++)
            n += set[l] = p->attention[l] == d;
        if (!n)
            continue;
        fprintf(f, "  - {layers: \"");
        print_ranges(f, set, p->n_layers);
        fprintf(f, "\", device: %s}\n", d == shape->gpu ? "gpu" : shape->devices[d]);
    }
}

static uint8_t belongs(const struct plan *p, int layer, int expert, int d, bool stream)
{
    return plan_expert(p, layer, expert) == d &&
           p->streamed[layer * p->n_experts + expert] == stream;
}

/* Layers with the same experts on the device share a rule. */
static void print_experts(FILE *f, const struct plan *p, const struct plan_shape *shape, int d,
                          bool stream, uint8_t *set, uint8_t *of_layer)
{
    for (int l = 0; l < p->n_layers; l++) {
        int n = 0;
        bool first = true;

        for (int x = 0; x < p->n_experts; x++)
            n += of_layer[x] = belongs(p, l, x, d, stream);
        for (int k = 0; k < p->n_layers; k++) {
            set[k] = 1;
            for (int x = 0; x < p->n_experts; x++)
                set[k] &= belongs(p, k, x, d, stream) == of_layer[x];
            first = first && !(set[k] && k < l);
        }
        if (!n || !first)
            continue;
        fprintf(f, "  - {layers: \"");
        print_ranges(f, set, p->n_layers);
        fprintf(f, "\", experts: \"");
        print_ranges(f, of_layer, p->n_experts);
        fprintf(f, "\", device: %s%s}\n", d == shape->gpu ? "gpu" : shape->devices[d],
                stream ? ", stream: yes" : "");
    }
}

/* In quotes, so that any name stays one text. */
static void print_name(FILE *f, const char *name)
{
    fputs("name: \"", f);
    for (; *name; name++) {
        if (*name == '"' || *name == '\\')
            fputc('\\', f);
        if ((unsigned char)*name >= 0x20 && *name != 0x7f)
            fputc(*name, f);
    }
    fputs("\"\n", f);
}

int plan_file_text(const struct plan *p, const struct plan_shape *shape, char **text, size_t *n,
                   struct error *e)
{
    uint8_t *set = mem_alloc((size_t)p->n_layers + (size_t)p->n_experts, 1);
    char *made = NULL;
    FILE *f = set ? open_memstream(&made, n) : NULL;
    int rc = 0;

    *text = NULL;
    if (!f) {
        mem_free(set);
        return error_set(e, ERR_MEMORY, "out of memory for a plan file");
    }
    fprintf(f, "# A placement of moetop: rules in order, what they leave out is on the CPU.\n");
    print_name(f, p->name);
    fprintf(f, "shape: %dx%d\nattention:\n", p->n_layers, p->n_experts);
    print_attention(f, p, shape, set);
    fprintf(f, "experts:\n");
    for (int d = 1; d < shape->n_devices; d++)
        for (int stream = 0; stream < 2; stream++)
            print_experts(f, p, shape, d, stream, set, set + p->n_layers);
    fprintf(f, "head: %s\n", p->head == shape->gpu && p->head ? "gpu" : shape->devices[p->head]);
    if (fclose(f) != 0 || !(*text = mem_string_n(made, *n)))
        rc = error_set(e, ERR_MEMORY, "out of memory for a plan file");
    free(made);
    mem_free(set);
    return rc;
}

int plan_file_write(const struct plan *p, const char *path, const struct plan_shape *shape,
                    struct error *e)
{
    char *text;
    size_t n;
    int rc = plan_file_text(p, shape, &text, &n, e);

    if (rc == 0)
        rc = file_replace(path, text, n, e);
    mem_free(text);
    return rc;
}

static bool is_file(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool plan_file_find(const char *text, char *path, size_t size)
{
    size_t n = strlen(text), name = strcspn(text, ":");
    char below[300], home[3000];

    if (strchr(text, '/') || path_stem(text, ".yaml") || path_stem(text, ".yml"))
        return snprintf(path, size, "%s", text) < (int)size;
    if (planner_find(text, name) || text[name] || n > 200)
        return false;
    paths_home("CONFIG", home, sizeof home);
    if (*home && snprintf(path, size, "%s/placements/%s.yaml", home, text) < (int)size &&
        is_file(path))
        return true;
    snprintf(below, sizeof below, "placements/%s.yaml", text);
    return paths_data(below, path, size, NULL) == 0;
}
