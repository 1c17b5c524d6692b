/* The doctor's page and its JSON. */
#include "app/doctor/internal.h"

#include "engine/base/utf8.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define INDENT 22 /* columns before what was found */
#define LEVEL 6   /* and before the subject: a narrow page has both behind it */
#define NARROW 60

/* Words of a text from a column on, wrapped. Colour changes are outside of it. */
static void put_wrapped(struct strbuf *b, const char *text, int indent, int columns)
{
    int at = indent;

    for (const char *p = text; *p;) {
        size_t n = strcspn(p, " ");
        int width = (int)utf8_width(p, n);

        if (at > indent && at + 1 + width > columns) {
            strbuf_printf(b, "\n%*s", indent, "");
            at = indent;
        } else if (at > indent) {
            strbuf_putc(b, ' ');
            at++;
        }
        strbuf_put(b, p, n);
        at += width;
        p += n;
        p += strspn(p, " ");
    }
    strbuf_putc(b, '\n');
}

static void put_finding(struct strbuf *b, const struct doctor_finding *f, int columns, bool colour)
{
    static const char *const colours[] = {"32", "36", "33", "31;1"};
    char text[sizeof f->subject + sizeof f->found + 2];
    int indent = columns < NARROW ? LEVEL : INDENT;

    if (colour)
        strbuf_printf(b, "\033[%sm", colours[f->level]);
    strbuf_printf(b, "%-4s", doctor_level_word(f->level));
    if (colour)
        strbuf_puts(b, "\033[0m");
    if (columns < NARROW) {
        snprintf(text, sizeof text, "%s: %s", f->subject, f->found);
        strbuf_puts(b, "  ");
    } else {
        snprintf(text, sizeof text, "%s", f->found);
        strbuf_printf(b, "  %-15s ", f->subject);
    }
    put_wrapped(b, text, indent, columns);
    if (!f->remedy[0])
        return;
    strbuf_printf(b, "%*s", indent, "");
    if (colour)
        strbuf_puts(b, "\033[1m");
    strbuf_puts(b, "→ ");
    if (colour)
        strbuf_puts(b, "\033[0m");
    put_wrapped(b, f->remedy, indent + 2, columns);
}

void doctor_print(const struct doctor *d, struct strbuf *out, int columns, bool colour)
{
    int bad = doctor_count(d, DOCTOR_BAD), warn = doctor_count(d, DOCTOR_WARN);

    columns = columns < 40 ? 40 : columns > 120 ? 120 : columns;
    put_wrapped(out, d->machine, 0, columns);
    for (int i = 0; i < d->n; i++)
        put_finding(out, &d->findings[i], columns, colour);
    strbuf_printf(out, "\n%d bad, %d warning%s.%sMost worth typing here:\n", bad, warn,
                  warn == 1 ? "" : "s", columns < NARROW ? "\n" : " ");
    for (int i = 0; i < d->n_commands; i++) {
        strbuf_printf(out, "  %s\n      ", d->commands[i].line);
        put_wrapped(out, d->commands[i].why, 6, columns);
    }
}

/* ---- JSON ---- */

static json_t *text_or_null(const char *s)
{
    return s[0] ? json_string(s) : json_null();
}

static json_t *rate_or_null(double v)
{
    return v > 0 ? json_real(v) : json_null();
}

static json_t *findings_json(const struct doctor *d)
{
    json_t *all = json_array();

    for (int i = 0; i < d->n; i++) {
        const struct doctor_finding *f = &d->findings[i];

        json_array_append_new(all, json_pack("{s:s, s:s, s:s, s:o, s:o}", "level",
                                             doctor_level_word(f->level), "subject", f->subject,
                                             "found", f->found, "remedy", text_or_null(f->remedy),
                                             "command", text_or_null(f->command)));
    }
    return all;
}

/* A path may hold any bytes. */
static json_t *path_json(const char *s)
{
    char safe[3 * PATH_MAX];
    json_t *v = json_string(s);

    if (v)
        return v;
    utf8_escape(safe, sizeof safe, s, strlen(s), 0);
    return json_string(safe);
}

static json_t *models_json(const struct doctor_measures *s)
{
    json_t *all = json_array();

    for (size_t i = 0; i < s->n_models; i++) {
        const struct doctor_model *m = &s->models[i];

        if (m->why_not[0])
            json_array_append_new(all, json_pack("{s:o, s:o}", "path", path_json(m->path), "error",
                                                 path_json(m->why_not)));
        else
            json_array_append_new(all, json_pack("{s:o, s:b, s:o, s:I, s:I, s:i, s:o, s:b}", "path",
                                                 path_json(m->path), "fits", m->fits, "fits_with",
                                                 text_or_null(m->fits_with), "file_bytes",
                                                 (json_int_t)m->bytes, "needed_bytes",
                                                 (json_int_t)m->needed, "context_that_fits",
                                                 m->context, "tokens_per_second",
                                                 rate_or_null(m->rate), "in_cache", m->in_cache));
    }
    return all;
}

struct json_t *doctor_json(const struct doctor *d)
{
    json_t *commands = json_array();

    for (int i = 0; i < d->n_commands; i++)
        json_array_append_new(commands,
                              json_pack("{s:o, s:o}", "line", path_json(d->commands[i].line), "why",
                                        path_json(d->commands[i].why)));
    return json_pack("{s:s, s:s, s:i, s:i, s:i, s:o, s:o, s:o, s:o, s:o}", "version",
                     MOETOP_VERSION, "machine", d->machine, "bad", doctor_count(d, DOCTOR_BAD),
                     "warnings", doctor_count(d, DOCTOR_WARN), "threads", d->measures.threads,
                     "memory_bytes_per_second", rate_or_null(d->measures.memory_rate),
                     "disk_bytes_per_second", rate_or_null(d->measures.disk_rate), "findings",
                     findings_json(d), "models", models_json(&d->measures), "commands", commands);
}
