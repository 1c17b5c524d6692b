/* See report.h. Text of a model or a user is never markup here: it is escaped, and bytes that act
 * on a terminal are removed. */
#include "app/chat/report.h"

#include "app/common/svg_plot.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/path.h"
#include "engine/base/strbuf.h"
#include "engine/base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

static const char *ending(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot ? dot : "";
}

int report_check(const char *path, struct error *e)
{
    char folder[PATH_MAX];

    if (strcasecmp(ending(path), ".html") != 0 && strcasecmp(ending(path), ".md") != 0)
        return error_set(e, ERR_USAGE,
                         "--report %.200s: a name that ends in .html or .md is needed", path);
    path_folder(path, folder, sizeof folder);
    if (access(folder, W_OK) < 0)
        return error_set(e, ERR_IO, "--report %.200s: %s", path, strerror(errno));
    return 0;
}

/* ---- HTML ---- */

static void put_html(struct strbuf *b, const char *text)
{
    size_t n = strlen(text),
           size = utf8_strip(NULL, 0, text, n, UTF8_KEEP_NEWLINE | UTF8_KEEP_TAB) + 1;
    char *safe = mem_alloc(size, 1);

    if (!safe) {
        b->failed = true;
        return;
    }
    utf8_strip(safe, size, text, n, UTF8_KEEP_NEWLINE | UTF8_KEEP_TAB);
    for (const char *p = safe; *p; p++)
        if (*p == '&')
            strbuf_puts(b, "&amp;");
        else if (*p == '<')
            strbuf_puts(b, "&lt;");
        else if (*p == '>')
            strbuf_puts(b, "&gt;");
        else
            strbuf_put(b, p, 1);
    mem_free(safe);
}

/* "cpu, from token 41 gpu · 128 tokens · 4.3 s (paced) · 2504 tokens/s" */
static void put_facts(struct strbuf *b, const struct transcript_entry *x)
{
    strbuf_puts(b, "<p class=facts>");
    if (x->n_plans > 1)
        for (size_t i = 0; i < x->n_plans; i++) {
            if (i)
                strbuf_printf(b, ", from token %d ", x->plans[i].first_token);
            put_html(b, x->plans[i].name);
        }
    else
        put_html(b, x->plan);
    strbuf_printf(b, " · %d tokens", x->tokens);
    if (x->seconds > 0)
        strbuf_printf(b, " · %.1f s%s", x->seconds, x->paced ? " (paced)" : "");
    if (x->tok_s > 0)
        strbuf_printf(b, " · %.1f tokens/s", x->tok_s);
    if (x->adapters[0]) {
        strbuf_puts(b, " · adapters ");
        put_html(b, x->adapters);
    }
    if (x->stop[0] && strcmp(x->stop, "stop") != 0) {
        strbuf_puts(b, " · ended by ");
        put_html(b, x->stop);
    }
    strbuf_puts(b, "</p>\n");
}

static void put_entry(struct strbuf *b, const struct transcript_entry *x)
{
    static const char *const heads[] = {"system", "you", "moetop", "tool"};

    if (x->summary) {
        strbuf_puts(b, "<hr><p class=facts>for the model this stands for all above: ");
        put_html(b, x->summary);
        strbuf_puts(b, "</p>\n");
    }
    strbuf_printf(b, "<section class=%s>\n<h2>%s</h2>\n", heads[x->role], heads[x->role]);
    if (x->reasoning) {
        strbuf_puts(b, "<details><summary>thought</summary><pre>");
        put_html(b, x->reasoning);
        strbuf_puts(b, "</pre></details>\n");
    }
    strbuf_puts(b, "<pre>");
    put_html(b, x->text);
    strbuf_puts(b, "</pre>\n");
    if (x->role == ROLE_ASSISTANT && x->tokens)
        put_facts(b, x);
    strbuf_puts(b, "</section>\n");
}

static const char head[] =
    "<!DOCTYPE html>\n<html lang=en>\n<meta charset=utf-8>\n"
    "<meta name=viewport content=\"width=device-width\">\n<title>moetop: a session</title>\n"
    "<style>:root{color-scheme:light dark}body{font:16px/1.5 sans-serif;max-width:60rem;"
    "margin:2rem auto;padding:0 1rem}pre{font:inherit;white-space:pre-wrap}h2{font-size:1rem;"
    "margin:1.5rem 0 0}.facts{opacity:.75;font-size:.85rem}.figures{font:14px/1.4 monospace;"
    "overflow-x:auto;white-space:pre}svg{max-width:100%;height:auto;background:#fff}</style>\n";

static void put_page(struct strbuf *b, const struct transcript *t, const char *figures,
                     const char *map)
{
    time_t created = (time_t)t->created;
    char when[64];
    struct tm tm;

    localtime_r(&created, &tm);
    strftime(when, sizeof when, "%Y-%m-%d %H:%M", &tm);
    strbuf_printf(b, "%s<h1>Conversation of %s</h1>\n", head, when);
    if (t->model) {
        strbuf_puts(b, "<p class=facts>model ");
        put_html(b, path_name(t->model));
        strbuf_puts(b, "</p>\n");
    }
    for (size_t i = 0; i < t->n; i++)
        put_entry(b, &t->entries[i]);
    if (figures) {
        strbuf_puts(b, "<h1>Figures</h1>\n<pre class=figures>");
        put_html(b, figures);
        strbuf_puts(b, "</pre>\n");
    }
    if (map)
        strbuf_printf(b, "<h1>Experts</h1>\n%s\n", map);
    strbuf_puts(b, "</html>\n");
}

/* ---- shared by both ---- */

/* mem_* text of the figures, NULL: none. */
static char *figures_text(const struct stats *s)
{
    char *text = NULL, *copy;
    size_t n;
    FILE *f = s->turns ? open_memstream(&text, &n) : NULL;

    if (!f)
        return NULL;
    stats_print(s, f);
    fclose(f);
    copy = mem_string(text);
    free(text); /* the C library's own */
    return copy;
}

/* mem_* SVG, NULL: no experts were chosen. */
static char *map_text(const struct stats *s)
{
    size_t cells = (size_t)s->n_layers * (size_t)s->n_experts;
    double *values = s->experts && cells ? mem_alloc(cells, sizeof *values) : NULL, sum = 0;
    char *map = NULL;

    for (size_t i = 0; values && i < cells; i++)
        sum += values[i] = s->experts[i];
    if (sum > 0)
        map = plot_map("Experts by layer, this session", values, NULL, s->n_layers, s->n_experts);
    mem_free(values);
    return map;
}

/* A conversation is private: file_replace keeps the mode of an existing file, so a new file is
 * created first. */
static int put_file(const char *path, const char *text, size_t n, struct error *e)
{
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600), rc;

    if (fd >= 0)
        close(fd);
    rc = file_replace(path, text, n, e);
    return rc < 0 ? error_prefix(e, "--report") : 0;
}

/* For "talk.md" the map is "talk.svg", linked from it. */
static int write_markdown(struct strbuf *b, const struct transcript *t, const char *path,
                          const char *figures, const char *map, struct error *e)
{
    char beside[PATH_MAX], *text = NULL;
    size_t n;
    int rc;

    if ((rc = transcript_as(t, path, &text, &n, e)) < 0)
        return rc;
    strbuf_put(b, text, n);
    free(text); /* the C library's own */
    if (figures)
        strbuf_printf(b, "\n## Figures\n\n```\n%s```\n", figures);
    if (!map)
        return 0;
    snprintf(beside, sizeof beside, "%.*s.svg", (int)(ending(path) - path), path);
    strbuf_printf(b, "\n## Experts\n\n![experts by layer](<%s>)\n", path_name(beside));
    return put_file(beside, map, strlen(map), e);
}

int report_write(const struct transcript *t, const struct stats *s, const char *path,
                 struct error *e)
{
    struct strbuf b = {0};
    char *figures, *map;
    int rc = 0;

    if (transcript_last(t, ROLE_USER) == t->n)
        return 0;
    figures = figures_text(s);
    map = map_text(s);
    if (strcasecmp(ending(path), ".md") == 0)
        rc = write_markdown(&b, t, path, figures, map, e);
    else
        put_page(&b, t, figures, map);
    if (rc == 0)
        rc = b.failed ? error_set(e, ERR_MEMORY, "out of memory for the report")
                      : put_file(path, b.data, b.len, e);
    strbuf_release(&b);
    mem_free(figures);
    mem_free(map);
    return rc;
}

char *report_page(const struct transcript *t, const struct stats *s)
{
    struct strbuf b = {0};
    char *figures = s ? figures_text(s) : NULL, *map = s ? map_text(s) : NULL, *page;

    put_page(&b, t, figures, map);
    page = b.failed ? NULL : mem_string(b.data);
    strbuf_release(&b);
    mem_free(figures);
    mem_free(map);
    return page;
}
