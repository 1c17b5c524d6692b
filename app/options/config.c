/* YAML to options. Main thread.
 * The document is loaded as libyaml's node table: an alias there is a number, so a "billion laughs"
 * file stays as small as it is on disk, and since only one level is ever looked at there is no
 * recursion to exhaust. */
#include "app/options/config.h"

#include "app/common/paths.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/path.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

#define DEPTH_MAX 16 /* deeper than any valid settings file */

struct reading {
    struct options *o;
    const char *name;
    enum option_origin from;
    int place;
    int line_of[OPTION_COUNT]; /* line of a key's first use; 0: not yet */
    struct error *e;
};

static int complain(const struct reading *r, yaml_mark_t at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int complain(const struct reading *r, yaml_mark_t at, const char *format, ...)
{
    char text[400];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return error_set(r->e, ERR_USAGE, "%s:%zu:%zu: %s", r->name, at.line + 1, at.column + 1, text);
}

static const char *scalar(const yaml_node_t *n)
{
    return (const char *)n->data.scalar.value;
}

static bool is_null(const yaml_node_t *n)
{
    const char *v = scalar(n);

    return n->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (!*v || !strcmp(v, "~") || !strcasecmp(v, "null"));
}

static int set_one(struct reading *r, const struct option *option, const yaml_node_t *value)
{
    char where[PATH_MAX + 32];
    struct error why = {0};

    if (value->type != YAML_SCALAR_NODE)
        return complain(r, value->start_mark, "%s: one value is expected here", option->name);
    if (strlen(scalar(value)) != value->data.scalar.length)
        return complain(r, value->start_mark, "%s: the value holds a zero byte", option->name);
    snprintf(where, sizeof where, "%s:%zu", r->name, value->start_mark.line + 1);
    if (options_set(r->o, option, scalar(value), r->from, NULL, &why) < 0)
        return complain(r, value->start_mark, "%s: %s", option->name, why.text);
    return options_note_origin(r->o, option, r->from, where, r->e);
}

static int set_list(struct reading *r, const struct option *option, yaml_document_t *d,
                    const yaml_node_t *list)
{
    int rc = 0;

    for (yaml_node_item_t *i = list->data.sequence.items.start;
         rc >= 0 && i < list->data.sequence.items.top; i++)
        rc = set_one(r, option, yaml_document_get_node(d, *i));
    return rc;
}

static int unknown_key(const struct reading *r, const yaml_node_t *key)
{
    const struct option *near, *known = options_find(scalar(key));

    if (known && *scalar(key) != '-' && (known->place & r->place) == r->place)
        return complain(r, key->start_mark, "'%s' is written %s in this file", scalar(key),
                        known->name);
    if (known && (known->place & OPTION_FILE))
        return complain(r, key->start_mark,
                        "'%s' cannot be set beside a model; put it into config.yaml", scalar(key));
    if (known)
        return complain(r, key->start_mark, "'%s' can only be given on the command line",
                        scalar(key));
    near = options_nearest(scalar(key), r->place);
    if (near)
        return complain(r, key->start_mark, "unknown key '%s'; did you mean '%s'?", scalar(key),
                        near->name);
    return complain(r, key->start_mark, "unknown key '%s'; moetop --print-config lists them",
                    scalar(key));
}

static int set_pair(struct reading *r, yaml_document_t *d, const yaml_node_t *key,
                    const yaml_node_t *value)
{
    const struct option *option;
    size_t id;

    if (key->type != YAML_SCALAR_NODE)
        return complain(r, key->start_mark, "a key must be a word");
    option = options_find(scalar(key));
    if (!option || strcmp(option->name, scalar(key)) || (option->place & r->place) != r->place)
        return unknown_key(r, key);
    id = (size_t)(option - option_table);
    if (r->line_of[id])
        return complain(r, key->start_mark, "'%s' is given twice; the first is in line %d",
                        option->name, r->line_of[id]);
    r->line_of[id] = (int)key->start_mark.line + 1;
    if (value->type == YAML_SCALAR_NODE && is_null(value))
        return 0; /* as if the key were missing */
    if (value->type == YAML_SEQUENCE_NODE && option->type == OPTION_LIST)
        return set_list(r, option, d, value);
    if (value->type == YAML_SEQUENCE_NODE)
        return complain(r, value->start_mark, "%s: takes one value, not a list", option->name);
    if (value->type == YAML_MAPPING_NODE)
        return complain(r, value->start_mark, "%s: takes one value, not keys of its own",
                        option->name);
    return set_one(r, option, value);
}

static int set_all(struct reading *r, yaml_document_t *d)
{
    const yaml_node_t *root = yaml_document_get_root_node(d);
    int rc = 0;

    if (root->type == YAML_SCALAR_NODE && is_null(root))
        return 0; /* a file of comments */
    if (root->type != YAML_MAPPING_NODE)
        return complain(r, root->start_mark, "lines of 'key: value' are expected");
    for (yaml_node_pair_t *p = root->data.mapping.pairs.start;
         rc >= 0 && p < root->data.mapping.pairs.top; p++)
        rc = set_pair(r, d, yaml_document_get_node(d, p->key), yaml_document_get_node(d, p->value));
    return rc;
}

static int syntax(const struct reading *r, const yaml_parser_t *p)
{
    yaml_mark_t at = p->problem_mark;

    if (p->error == YAML_MEMORY_ERROR)
        return error_set(r->e, ERR_MEMORY, "%s: out of memory", r->name);
    if (p->error == YAML_READER_ERROR)
        return error_set(r->e, ERR_USAGE, "%s: byte %zu: %s; the file must be UTF-8 text", r->name,
                         p->problem_offset, p->problem);
    return complain(r, at, "%s%s%s; indent with spaces, and quote a text that holds : # [ or {",
                    p->problem ? p->problem : "not valid YAML", p->context ? " " : "",
                    p->context ? p->context : "");
}

/* First pass: only the depth. The loader's time grows with the square of the nesting, so a file of
 * a million brackets would hang it. */
static int check_depth(const struct reading *r, const char *text, size_t n)
{
    yaml_parser_t parser;
    yaml_event_t event;
    int depth = 0, rc = 0;
    bool end = false;

    if (!yaml_parser_initialize(&parser))
        return error_set(r->e, ERR_MEMORY, "%s: out of memory", r->name);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
    while (!end && rc == 0) {
        if (!yaml_parser_parse(&parser, &event)) {
            rc = syntax(r, &parser);
            break;
        }
        if (event.type == YAML_SEQUENCE_START_EVENT || event.type == YAML_MAPPING_START_EVENT)
            depth++;
        else if (event.type == YAML_SEQUENCE_END_EVENT || event.type == YAML_MAPPING_END_EVENT)
            depth--;
        if (depth > DEPTH_MAX)
            rc = complain(r, event.start_mark,
                          "nested too deeply; lines of 'key: value' are expected");
        end = event.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return rc;
}

int config_parse(struct options *o, const char *text, size_t n, const char *name,
                 enum option_origin from, int place, struct error *e)
{
    struct reading r = {.o = o, .name = name, .from = from, .place = place, .e = e};
    yaml_parser_t parser;
    yaml_document_t d;
    int rc = check_depth(&r, text, n);

    if (rc < 0)
        return rc;
    if (!yaml_parser_initialize(&parser))
        return error_set(e, ERR_MEMORY, "%s: out of memory", name);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
    for (int documents = 0; rc >= 0; documents++) {
        bool end;

        if (!yaml_parser_load(&parser, &d)) {
            rc = syntax(&r, &parser);
            break;
        }
        end = !yaml_document_get_root_node(&d);
        if (!end && documents)
            rc = complain(&r, yaml_document_get_root_node(&d)->start_mark,
                          "only one document is allowed in this file");
        else if (!end)
            rc = set_all(&r, &d);
        yaml_document_delete(&d);
        if (end)
            break;
    }
    yaml_parser_delete(&parser);
    return rc;
}

/* 1: it does not exist. */
static int read_file(const char *path, char **text, size_t *n, struct error *e)
{
    static const struct file_kind kind = {"configuration file", CONFIG_BYTES_MAX, ERR_USAGE};
    int rc;

    *text = NULL;
    if (access(path, F_OK) < 0 && (errno == ENOENT || errno == ENOTDIR))
        return 1;
    rc = file_read(path, &kind, text, n, e);
    if (rc != ERR_IO)
        return rc;
    if (e)
        e->code = ERR_USAGE; /* a configuration that cannot be read is an error of usage */
    return ERR_USAGE;
}

int config_read(struct options *o, const char *path, enum option_origin from, int place,
                bool must_exist, struct error *e)
{
    size_t n = 0;
    char *text;
    int rc = read_file(path, &text, &n, e);

    if (rc == 1)
        return must_exist ? error_set(e, ERR_USAGE, "%s: no such configuration file", path) : 0;
    if (rc == 0)
        rc = config_parse(o, text, n, path, from, place, e);
    mem_free(text);
    return rc;
}

int config_read_all(struct options *o, struct error *e)
{
    const char *dirs = getenv("XDG_CONFIG_DIRS");
    char path[PATH_MAX];
    int rc = 0;
    size_t n;

    if (o->config)
        return config_read(o, o->config, ORIGIN_CONFIG, OPTION_FILE, true, e);
    if (!dirs || !*dirs)
        dirs = "/etc/xdg";
    /* The list names the most important first: walk it from its end. */
    for (n = strlen(dirs); rc >= 0 && n;) {
        size_t start = n;

        while (start && dirs[start - 1] != ':')
            start--;
        if (dirs[start] == '/' && snprintf(path, sizeof path, "%.*s/moetop/config.yaml",
                                           (int)(n - start), dirs + start) < (int)sizeof path)
            rc = config_read(o, path, ORIGIN_SITE, OPTION_FILE, false, e);
        n = start ? start - 1 : 0;
    }
    paths_home("CONFIG", path, sizeof path - 16);
    if (rc < 0 || !*path)
        return rc;
    strcat(path, "/config.yaml");
    return config_read(o, path, ORIGIN_CONFIG, OPTION_FILE, false, e);
}

int config_read_model(struct options *o, const char *model_path, struct error *e)
{
    char path[PATH_MAX + 16];
    size_t n = path_stem(model_path, ".gguf");
    struct stat st;

    if (stat(model_path, &st) < 0)
        return 0; /* the loader reports it better */
    if (S_ISDIR(st.st_mode))
        snprintf(path, sizeof path, "%s/moetop.yaml", model_path);
    else if (n)
        snprintf(path, sizeof path, "%.*s.yaml", (int)n, model_path);
    else
        return 0;
    return config_read(o, path, ORIGIN_MODEL, OPTION_MODEL, false, e);
}
