/* See settings.h. JSON is parsed as YAML in flow style, of which it is nearly a subset. */
#include "app/train/settings.h"

#include "app/common/did_you_mean.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"

#include <stdio.h>
#include <string.h>
#include <yaml.h>

#define FILE_MOST ((size_t)1 << 20)
#define KEYS_MOST 32

struct reading {
    struct train_config *c;
    const char *path;
    yaml_document_t *d;
    struct error *e;
};

static int complain(const struct reading *r, yaml_mark_t at, const char *text)
{
    return error_set(r->e, ERR_USAGE, "%s:%zu: %s", r->path, at.line + 1, text);
}

static int unknown(const struct reading *r, yaml_mark_t at, const char *key)
{
    const char *known[KEYS_MOST];
    char text[160];
    int n = 0, near;

    for (; n < KEYS_MOST && train_config_key(n); n++)
        known[n] = train_config_key(n);
    near = nearest_word(key, known, (size_t)n);
    snprintf(text, sizeof text,
             near < 0 ? "unknown key '%.60s'"
                      : "unknown key '%.60s'; did you "
                        "mean '%s'?",
             key, near < 0 ? "" : known[near]);
    return complain(r, at, text);
}

/* A scalar's text, or the items of a list separated by commas. */
static bool text_of(yaml_document_t *d, const yaml_node_t *v, char *out, size_t size)
{
    size_t n = 0;

    out[0] = 0;
    if (v->type == YAML_SCALAR_NODE)
        return snprintf(out, size, "%s", (const char *)v->data.scalar.value) < (int)size;
    if (v->type != YAML_SEQUENCE_NODE)
        return false;
    for (yaml_node_item_t *i = v->data.sequence.items.start; i < v->data.sequence.items.top; i++) {
        const yaml_node_t *x = yaml_document_get_node(d, *i);

        if (x->type != YAML_SCALAR_NODE || n >= size)
            return false;
        n += (size_t)snprintf(out + n, size - n, "%s%s", n ? "," : "",
                              (const char *)x->data.scalar.value);
    }
    return n < size;
}

/* Whether two keys are equal. */
static bool same_key(const yaml_node_t *a, const yaml_node_t *b)
{
    return a->type == YAML_SCALAR_NODE && b->type == YAML_SCALAR_NODE &&
           strcmp((const char *)a->data.scalar.value, (const char *)b->data.scalar.value) == 0;
}

/* Checks that no earlier pair sets the key. */
static int check_once(const struct reading *r, const yaml_node_pair_t *first,
                      const yaml_node_pair_t *pair)
{
    const yaml_node_t *key = yaml_document_get_node(r->d, pair->key);
    char text[160];

    for (; first < pair; first++) {
        const yaml_node_t *other = yaml_document_get_node(r->d, first->key);

        if (!same_key(other, key))
            continue;
        snprintf(text, sizeof text, "'%.60s' is set in line %zu already: give it once",
                 (const char *)key->data.scalar.value, other->start_mark.line + 1);
        return complain(r, key->start_mark, text);
    }
    return 0;
}

static int set_pair(struct reading *r, const yaml_node_pair_t *pair)
{
    const yaml_node_t *key = yaml_document_get_node(r->d, pair->key),
                      *value = yaml_document_get_node(r->d, pair->value);
    const char *name = (const char *)key->data.scalar.value;
    struct error why = {0};
    char text[200];
    bool known = false;

    if (key->type != YAML_SCALAR_NODE)
        return complain(r, key->start_mark, "a key must be a word");
    for (int i = 0; train_config_key(i); i++)
        known |= strcmp(train_config_key(i), name) == 0;
    if (train_config_ignores(name))
        return 0;
    if (!text_of(r->d, value, text, sizeof text))
        return complain(r, value->start_mark, "one value, or a list of values, is expected");
    if (strcmp(name, "detach_routing") == 0 && strcmp(text, "false") == 0)
        return 0;
    if (!known)
        return unknown(r, key->start_mark, name);
    return train_config_set(r->c, name, text, &why) < 0 ? complain(r, value->start_mark, why.text)
                                                        : 0;
}

static int set_all(struct reading *r)
{
    const yaml_node_t *root = yaml_document_get_root_node(r->d);
    int rc = 0;

    if (!root)
        return 0;
    if (root->type != YAML_MAPPING_NODE)
        return complain(r, root->start_mark, "keys and values are expected");
    for (yaml_node_pair_t *p = root->data.mapping.pairs.start;
         rc == 0 && p < root->data.mapping.pairs.top; p++)
        if ((rc = check_once(r, root->data.mapping.pairs.start, p)) == 0)
            rc = set_pair(r, p);
    return rc;
}

static int read_file(struct train_config *c, const char *path, struct error *e)
{
    static const struct file_kind kind = {"file of training settings", FILE_MOST, ERR_USAGE};
    yaml_parser_t parser;
    yaml_document_t d;
    struct reading r = {c, path, &d, e};
    char *text;
    size_t n;
    int rc = file_read(path, &kind, &text, &n, e);

    if (rc < 0)
        return rc;
    for (size_t i = 0; i < n && text[0] == '{'; i++)
        text[i] = text[i] == '\t' ? ' ' : text[i]; /* JSON may be indented with tabs */
    if (!yaml_parser_initialize(&parser)) {
        mem_free(text);
        return error_set(e, ERR_MEMORY, "%s: out of memory", path);
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
    if (!yaml_parser_load(&parser, &d)) {
        rc = error_set(e, ERR_USAGE, "%s:%zu: %s", path, parser.problem_mark.line + 1,
                       parser.problem ? parser.problem : "neither YAML nor JSON");
    } else {
        rc = set_all(&r);
        yaml_document_delete(&d);
    }
    yaml_parser_delete(&parser);
    mem_free(text);
    return rc;
}

static int set_flag(struct train_config *c, const char *flag, const char *key, const char *text,
                    struct error *e)
{
    int rc = text ? train_config_set(c, key, text, e) : 0;

    return rc < 0 ? error_prefix(e, "--%s", flag) : 0;
}

int train_settings(struct train_config *c, const struct options *o, struct error *e)
{
    const struct {
        const char *flag, *key, *text;
    } flags[] = {
        {"steps", "steps", o->steps},
        {"epochs", "epochs", o->epochs},
        {"train-batch", "batch", o->train_batch},
        {"accumulation", "accumulation", o->accumulation},
        {"lr", "lr", o->lr},
        {"warmup-steps", "warmup_steps", o->warmup_steps},
        {"min-lr-ratio", "min_lr_ratio", o->min_lr_ratio},
        {"betas", "betas", o->betas},
        {"eps", "eps", o->eps},
        {"weight-decay", "weight_decay", o->weight_decay},
        {"clip", "clip", o->clip},
        {"rank", "rank", o->rank},
        {"alpha", "alpha", o->alpha},
        {"lora-targets", "targets", o->lora_targets},
        {"base", "base", o->base},
        {"keep-activations", "keep_activations", o->keep_activations},
        {"save-every", "save_every", o->save_every},
        {"skip-expert-grad", "skip_expert_grad", o->skip_expert_grad ? "true" : NULL},
    };
    int rc;

    train_config_init(c);
    if (o->train_config && (rc = read_file(c, o->train_config, e)) < 0)
        return rc;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if ((rc = set_flag(c, flags[i].flag, flags[i].key, flags[i].text, e)) < 0)
            return rc;
    if (o->seed != OPTION_SEED_RANDOM)
        c->seed = o->seed;
    if (o->ctx_size > 0)
        c->context = o->ctx_size;
    if (o->epochs && o->steps)
        return error_set(e, ERR_USAGE, "--epochs and --steps: one of the two says how long");
    if (o->epochs)
        c->steps = 0;
    return 0;
}
