/* See edit_file.h. Read event by event, so that nothing is nested. */
#include "app/lab/edit_file.h"

#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/device/expert_edits.h"

#include <string.h>
#include <yaml.h>

#define FILE_MAX ((size_t)1 << 20)
#define KEY "expert_edits"

struct reading {
    struct edit_lines *out;
    const char *name;
    bool keyed, listed, done; /* the key was read, the list has begun, has ended */
    struct error *e;
};

static int complain(const struct reading *r, const yaml_event_t *at, const char *what)
{
    return error_set(r->e, ERR_USAGE, "%s:%zu:%zu: %s", r->name, at->start_mark.line + 1,
                     at->start_mark.column + 1, what);
}

static int scalar(struct reading *r, const yaml_event_t *ev)
{
    const char *text = (const char *)ev->data.scalar.value;
    struct edit_lines *l = r->out;

    if (strlen(text) != ev->data.scalar.length)
        return complain(r, ev, "a zero byte");
    if (!r->listed && !r->keyed && strcmp(text, KEY) == 0) {
        r->keyed = true;
        return 0;
    }
    if (!r->listed)
        return complain(r, ev, "a list of edits is expected, such as\n" KEY ":\n  - off L17/E9");
    if (l->n == EXPERT_EDITS_LINES)
        return complain(r, ev, "too many edits");
    if (!MEM_FIT(l->lines, l->n + 1) || !(l->lines[l->n] = mem_string(text)))
        return error_set(r->e, ERR_MEMORY, "out of memory for '%s'", r->name);
    l->n++;
    return 0;
}

static int take(struct reading *r, const yaml_event_t *ev)
{
    switch (ev->type) {
    case YAML_SCALAR_EVENT:
        return r->done ? complain(r, ev, "something behind the list") : scalar(r, ev);
    case YAML_SEQUENCE_START_EVENT:
        if (r->listed)
            return complain(r, ev, "an edit is expected, not a list");
        r->listed = true;
        return 0;
    case YAML_SEQUENCE_END_EVENT: r->done = true; return 0;
    case YAML_MAPPING_START_EVENT:
        if (r->keyed || r->listed)
            return complain(r, ev, "an edit is expected: off L17/E9");
        return 0;
    case YAML_ALIAS_EVENT: return complain(r, ev, "aliases are not read here");
    default: return 0;
    }
}

int edit_file_parse(struct edit_lines *out, const char *text, size_t size, const char *name,
                    struct error *e)
{
    struct reading r = {.out = out, .name = name, .e = e};
    yaml_parser_t parser;
    bool end = false;
    int rc = 0;

    *out = (struct edit_lines){0};
    if (!yaml_parser_initialize(&parser))
        return error_set(e, ERR_MEMORY, "out of memory for '%s'", name);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
    while (!end && rc == 0) {
        yaml_event_t ev;

        if (!yaml_parser_parse(&parser, &ev)) {
            rc = error_set(e, ERR_USAGE, "%s:%zu:%zu: %s", name, parser.problem_mark.line + 1,
                           parser.problem_mark.column + 1,
                           parser.problem ? parser.problem : "this is not YAML");
            break;
        }
        end = ev.type == YAML_STREAM_END_EVENT;
        rc = take(&r, &ev);
        yaml_event_delete(&ev);
    }
    yaml_parser_delete(&parser);
    if (rc == 0 && !r.done)
        rc = error_set(e, ERR_USAGE, "%s: it has no list of edits, such as - off L17/E9", name);
    if (rc < 0)
        edit_lines_release(out);
    return rc;
}

int edit_file_read(struct edit_lines *out, const char *path, struct error *e)
{
    static const struct file_kind kind = {"expert edits", FILE_MAX, ERR_USAGE};
    char *text;
    size_t n;
    int rc = file_read(path, &kind, &text, &n, e);

    *out = (struct edit_lines){0};
    if (rc < 0)
        return rc;
    rc = edit_file_parse(out, text, n, path, e);
    mem_free(text);
    return rc;
}

void edit_lines_release(struct edit_lines *l)
{
    for (size_t i = 0; i < l->n; i++)
        mem_free(l->lines[i]);
    mem_free(l->lines);
    *l = (struct edit_lines){0};
}
