/* See theme_file.h. A theme is a mapping of up to three mappings (256, 16, mono), each of role to
 * style. */
#include "app/setup/screen/theme_file.h"
#include "app/setup/completion_values.h"
#include "app/common/paths.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>

#define THEME_MOST (256 << 10) /* bytes of a file */

static void add_name(void *ctx, const char *name)
{
    strbuf_printf(ctx, "%s%s", ((struct strbuf *)ctx)->len ? ", " : "", name);
}

static int unknown(const char *name, struct error *e)
{
    struct strbuf names = {0};

    values_each(&option_table[OPTION_ID_theme], true, add_name, &names);
    error_set(e, ERR_USAGE, "there is no theme %s; there are %s, or a file", name,
              names.data ? names.data : "none");
    strbuf_release(&names);
    return ERR_USAGE;
}

static int find(const char *name, char *path, size_t size, struct error *e)
{
    char below[256], folder[PATH_MAX];

    if (strchr(name, '/') || access(name, R_OK) == 0) {
        snprintf(path, size, "%s", name);
        return 0;
    }
    paths_home("CONFIG", folder, sizeof folder);
    snprintf(path, size, "%.3000s/themes/%.200s.yaml", folder, name);
    if (folder[0] && access(path, R_OK) == 0)
        return 0;
    snprintf(below, sizeof below, "themes/%.200s.yaml", name);
    if (paths_data(below, path, size, e) < 0)
        return unknown(name, e);
    return 0;
}

static int complain(struct error *e, const char *path, yaml_mark_t at, const char *what,
                    const char *word)
{
    return error_set(e, ERR_USAGE, "%s:%zu:%zu: %s%s", path, at.line + 1, at.column + 1, what,
                     word);
}

static int depth_of(const char *word, enum theme_depth *out)
{
    static const char *const words[] = {
        [THEME_MONO] = "mono", [THEME_16] = "16", [THEME_256] = "256"};
    int i;

    for (i = 0; i < 3; i++)
        if (strcmp(word, words[i]) == 0) {
            *out = (enum theme_depth)i;
            return 0;
        }
    return -1;
}

static int read_events(yaml_parser_t *y, const char *path, struct theme *t, struct error *e)
{
    enum theme_depth depth = THEME_256;
    char key[64] = "";
    int level = 0, rc = 0;
    bool done = false;

    while (!done && rc >= 0) {
        yaml_event_t ev;
        const char *word;

        if (!yaml_parser_parse(y, &ev))
            return complain(e, path, y->problem_mark, y->problem ? y->problem : "not YAML", "");
        word = ev.type == YAML_SCALAR_EVENT ? (const char *)ev.data.scalar.value : "";
        if (ev.type == YAML_STREAM_END_EVENT) {
            done = true;
        } else if (ev.type == YAML_MAPPING_START_EVENT) {
            if (++level > 2 || (level == 2 && !key[0]))
                rc = complain(
                    e, path, ev.start_mark,
                    "a theme has depths (256, 16, mono) with roles and styles, nothing deeper", "");
            key[0] = 0;
        } else if (ev.type == YAML_MAPPING_END_EVENT) {
            level--;
            key[0] = 0;
        } else if (ev.type == YAML_SEQUENCE_START_EVENT || ev.type == YAML_ALIAS_EVENT) {
            rc = complain(e, path, ev.start_mark, "lists and aliases have no place in a theme", "");
        } else if (ev.type == YAML_SCALAR_EVENT && level == 1) {
            if (depth_of(word, &depth) < 0)
                rc = complain(e, path, ev.start_mark, "not one of 256, 16, mono: ", word);
            else
                snprintf(key, sizeof key, "%s", word);
        } else if (ev.type == YAML_SCALAR_EVENT && level == 2 && !key[0]) {
            snprintf(key, sizeof key, "%s", word);
        } else if (ev.type == YAML_SCALAR_EVENT && level == 2) {
            int set = theme_assign(t, key, depth, word);

            if (set == -1)
                rc = complain(e, path, ev.start_mark, "there is no role ", key);
            else if (set == -2)
                rc = complain(e, path, ev.start_mark,
                              "not a style (\"117 on 236 bold\", \"bright-cyan\", \"default\"): ",
                              word);
            key[0] = 0;
        } else if (ev.type == YAML_SCALAR_EVENT) {
            rc = complain(e, path, ev.start_mark,
                          "a theme has depths (256, 16, mono), each with roles and styles", "");
        }
        yaml_event_delete(&ev);
    }
    return rc;
}

int theme_parse(struct theme *t, const char *text, size_t n, const char *name, struct error *e)
{
    struct theme fresh;
    yaml_parser_t y;
    int rc;

    if (!yaml_parser_initialize(&y))
        return error_set(e, ERR_MEMORY, "out of memory");
    theme_init(&fresh);
    fresh.depth = t->depth;
    fresh.ascii = t->ascii;
    yaml_parser_set_input_string(&y, (const unsigned char *)text, n);
    rc = read_events(&y, name, &fresh, e);
    yaml_parser_delete(&y);
    if (rc >= 0)
        *t = fresh;
    return rc;
}

int theme_file_load(struct theme *t, const char *name, struct error *e)
{
    static const struct file_kind kind = {"theme", THEME_MOST, ERR_USAGE};
    char path[PATH_MAX + 300], *text;
    size_t n;
    int rc = find(name, path, sizeof path, e);

    if (rc < 0 || (rc = file_read(path, &kind, &text, &n, e)) < 0)
        return rc;
    rc = theme_parse(t, text, n, path, e);
    mem_free(text);
    return rc;
}
