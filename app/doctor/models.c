/* The doctor's check of the models at hand, and the commands most worth typing. */
#include "app/doctor/internal.h"

#include "engine/base/size.h"
#include "engine/base/strbuf.h"

#include <stdlib.h>
#include <string.h>

#define READABLE 8 /* tokens/s that a reader keeps up with */

static void rate_text(const struct doctor_model *m, char *out, size_t size)
{
    if (m->in_cache)
        snprintf(out, size, ", faster than anyone reads");
    else if (m->rate > 0)
        snprintf(out, size, m->rate < 10 ? ", about %.1f tokens/s" : ", about %.0f tokens/s",
                 m->rate);
    else
        out[0] = 0;
}

static void check_model(struct doctor *d, const struct doctor_model *m)
{
    char size[24], needed[24], rate[48];
    struct doctor_finding *f;

    size_format(m->bytes, size, sizeof size);
    rate_text(m, rate, sizeof rate);
    if (m->why_not[0]) {
        f = doctor_find(d, m->chosen ? DOCTOR_BAD : DOCTOR_WARN, "model",
                        "%.120s cannot be opened: "
                        "%.220s",
                        m->name, m->why_not);
        doctor_remedy(
            f, "", m->chosen ? "-m FILE names another model" : "download it again, or remove it");
    } else if (m->fits) {
        doctor_find(d, DOCTOR_OK, "model", "%.120s (%s) fits with %d tokens of context%s", m->name,
                    size, m->context, rate);
    } else {
        f = doctor_find(d, m->chosen && !m->fits_with[0] ? DOCTOR_BAD : DOCTOR_NOTE, "model",
                        "%.120s (%s) needs %s, more than is free", m->name, size,
                        size_format(m->needed, needed, sizeof needed));
        if (m->fits_with[0])
            doctor_remedy(f, "", "%s%s", m->fits_with, rate);
        else
            doctor_remedy(f, "", "a smaller model, or a smaller type: moetop --fit %s", m->path);
    }
}

void doctor_check_models(struct doctor *d)
{
    const struct doctor_measures *s = &d->measures;

    for (size_t i = 0; i < s->n_models; i++)
        check_model(d, &s->models[i]);
    if (s->all_models > s->n_models)
        doctor_find(d, DOCTOR_NOTE, "model", "%zu more are on this machine: /model lists them",
                    s->all_models - s->n_models);
}

/* ---- commands ---- */

static void add_command(struct doctor *d, const char *line, const char *format, const char *what)
{
    struct doctor_command *c = &d->commands[d->n_commands];

    if (d->n_commands == DOCTOR_COMMANDS)
        return;
    for (int i = 0; i < d->n_commands; i++)
        if (strcmp(d->commands[i].line, line) == 0)
            return;
    snprintf(c->line, sizeof c->line, "%s", line);
    snprintf(c->why, sizeof c->why, format, what);
    d->n_commands++;
}

/* A path as a word of a shell. */
static void shell_word(struct strbuf *b, const char *path)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./+:@%";

    if (path[0] && !path[strspn(path, plain)]) {
        strbuf_puts(b, path);
        return;
    }
    strbuf_putc(b, '\'');
    for (; *path; path++)
        if (*path == '\'')
            strbuf_puts(b, "'\\''");
        else
            strbuf_putc(b, *path);
    strbuf_putc(b, '\'');
}

/* The largest model that fits and is readable; else the largest that fits. NULL: none. */
static const struct doctor_model *best_model(const struct doctor_measures *s)
{
    const struct doctor_model *best = NULL, *any = NULL;

    for (size_t i = 0; i < s->n_models; i++) {
        const struct doctor_model *m = &s->models[i];

        if (m->why_not[0] || (!m->fits && !m->fits_with[0]))
            continue;
        if (!any || m->bytes < any->bytes)
            any = m;
        if ((m->in_cache || m->rate >= READABLE) && (!best || m->bytes > best->bytes))
            best = m;
    }
    return best ? best : any;
}

static void add_model_command(struct doctor *d, const struct doctor_model *m, const char *with,
                              const char *format)
{
    struct strbuf b = {0};

    strbuf_puts(&b, "moetop -m ");
    shell_word(&b, m->path);
    if (!m->fits && m->fits_with[0])
        strbuf_printf(&b, " %s", m->fits_with);
    strbuf_puts(&b, with);
    if (!b.failed && b.len < sizeof d->commands[0].line)
        add_command(d, b.data, format, m->name);
    strbuf_release(&b);
}

static bool has_gpu(const struct doctor_measures *s)
{
    for (int i = 0; i < s->n_devices && i < DEVICE_MAX; i++)
        if (!s->devices[i].info.is_cpu_type && !s->devices[i].info.why_not[0] &&
            !s->devices[i].failed[0])
            return true;
    return false;
}

void doctor_choose_commands(struct doctor *d)
{
    const struct doctor_model *best = best_model(&d->measures);

    for (int level = DOCTOR_BAD; level >= DOCTOR_WARN; level--)
        for (int i = 0; i < d->n && d->n_commands < DOCTOR_COMMANDS - 1; i++)
            if ((int)d->findings[i].level == level && d->findings[i].command[0])
                add_command(d, d->findings[i].command, "%s", d->findings[i].found);
    if (best)
        add_model_command(d, best, "", "chat with %s");
    if (best && has_gpu(&d->measures))
        add_model_command(d, best, " -p Hi --compare cpu,gpu", "is the GPU faster with %s?");
    if (best)
        add_model_command(d, best, " --bench", "measure %s in llama-bench's terms");
    else
        add_command(d, "moetop -hf USER/REPO:Q4_K_M", "download a model of the Hugging Face Hub%s",
                    "");
    add_command(d, "moetop --fit ~", "which models below your home folder fit%s", "");
    add_command(d, "moetop --list-devices", "test and measure every device%s", "");
}
