/* See config_keep.h. The file is the user's: it is not parsed and rewritten, which would lose
 * comments and order; one line replaces the old one, and the result is validated with the program's
 * own parser before it replaces the file. Main thread. */
#include "app/options/config_keep.h"

#include "app/common/paths.h"
#include "app/options/config.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

static int place_of(const struct options *o, char *path, size_t size, struct error *e)
{
    char folder[PATH_MAX];

    if (o->config) {
        snprintf(path, size, "%s", o->config);
        return 0;
    }
    paths_home("CONFIG", folder, sizeof folder - 16);
    if (!folder[0])
        return error_set(e, ERR_USAGE, "there is no home directory to keep settings in");
    snprintf(path, size, "%s/config.yaml", folder);
    return file_make_folders(folder, e);
}

/* As a YAML scalar that means the same text. */
static void value_put(struct strbuf *b, const struct option *option, const char *value)
{
    bool words = option->type == OPTION_TEXT || option->type == OPTION_PATH;

    if (!value[0] || !words) {
        strbuf_puts(b, value[0] ? value : "null");
        return;
    }
    strbuf_putc(b, '"');
    for (const unsigned char *p = (const unsigned char *)value; *p; p++)
        if (*p < 0x20)
            strbuf_printf(b, "\\x%02x", *p);
        else
            strbuf_printf(b, "%s%c", *p == '"' || *p == '\\' ? "\\" : "", *p);
    strbuf_putc(b, '"');
}

static size_t line_length(const char *line)
{
    size_t n = strcspn(line, "\n");

    return n + (line[n] == '\n');
}

static bool is_key(const char *line, const char *name)
{
    size_t n = strlen(name);

    return strncmp(line, name, n) == 0 && line[n + strspn(line + n, " \t")] == ':';
}

/* The text with that line replaced; continuation lines of the old value are removed. */
static void edit(struct strbuf *out, const char *text, const char *name, const char *line)
{
    bool put = false;

    while (*text) {
        size_t n = line_length(text);

        if (!is_key(text, name)) {
            strbuf_put(out, text, n);
            text += n;
            continue;
        }
        text += n;
        while (*text == ' ' || *text == '\t' || *text == '-')
            text += line_length(text);
        strbuf_puts(out, put ? "" : line);
        put = true;
    }
    if (put)
        return;
    if (out->len && out->data[out->len - 1] != '\n')
        strbuf_putc(out, '\n');
    strbuf_puts(out, line);
}

/* Whether the program reads back the present value from it. */
static int check(const struct strbuf *text, const char *path, const struct option *option,
                 const char *value, struct error *e)
{
    struct options read;
    char got[1024];
    int rc = options_init(&read, e);

    if (rc < 0)
        return rc;
    rc = config_parse(&read, text->data, text->len, path, ORIGIN_CONFIG, OPTION_FILE, e);
    if (rc >= 0) {
        option_value(&read, option, got, sizeof got);
        if (strcmp(got, value) != 0)
            rc = error_set(e, ERR_USAGE, "%s: %s cannot be put there by itself; edit the file",
                           path, option->name);
    }
    options_release(&read);
    return rc;
}

int config_keep(const struct options *o, const struct option *option, char *path, size_t size,
                struct error *e)
{
    static const struct file_kind kind = {"configuration file", CONFIG_BYTES_MAX, ERR_USAGE};
    struct strbuf line = {0}, text = {0};
    char value[1024], *old = NULL;
    size_t n = 0;
    int rc;

    if (!(option->place & OPTION_FILE) || option->type == OPTION_LIST)
        return error_set(e, ERR_USAGE, "%s cannot be kept from here; edit the configuration file",
                         option->name);
    if ((rc = place_of(o, path, size, e)) < 0)
        return rc;
    if ((access(path, F_OK) == 0 || errno != ENOENT) &&
        (rc = file_read(path, &kind, &old, &n, e)) < 0)
        goto out;
    option_value(o, option, value, sizeof value);
    strbuf_printf(&line, "%s: ", option->name);
    value_put(&line, option, value);
    strbuf_putc(&line, '\n');
    if (!line.failed)
        edit(&text, old ? old : "", option->name, line.data);
    if (line.failed || text.failed)
        rc = error_set(e, ERR_MEMORY, "out of memory for %s", path);
    else if ((rc = check(&text, path, option, value, e)) >= 0)
        rc = file_replace(path, text.data, text.len, e);
out:
    strbuf_release(&line);
    strbuf_release(&text);
    mem_free(old);
    return rc < 0 ? rc : 0;
}
