/* The slash command /model: lists the available models, each with its size and family and whether
 * it fits here, and switches to one of them. Since there may be many, the files are inspected on
 * the engine's thread, between two answers; that thread gets copies of its inputs. */
#include "app/chat/commands/internal.h"

#include "app/common/model_places.h"
#include "app/setup/engine_options.h"
#include "app/setup/fit.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/size.h"
#include "engine/file/dtype.h"
#include "engine/file/weights.h"
#include "engine/model/model.h"

#include <string.h>

#define LISTED 60

struct model_look {
    struct engine_setup setup;
    char **paths;
    size_t n;
};

static void look_release(void *ctx)
{
    struct model_look *l = ctx;

    engine_setup_release(&l->setup);
    for (size_t i = 0; i < l->n; i++)
        mem_free(l->paths[i]);
    mem_free(l->paths);
    mem_free(l);
}

/* The error without the path, which is printed before it. */
static const char *why_short(const struct error *why, const char *path)
{
    size_t n = strlen(path);

    return strncmp(why->text, path, n) == 0 && strncmp(why->text + n, ": ", 2) == 0
               ? why->text + n + 2
               : why->text;
}

/* "  5 > 738 KiB  fits   qwen3_moe q8_0   m/qwen3moe.gguf" */
static void put_row(struct strbuf *b, const struct model_look *l, size_t i, uint64_t free_bytes)
{
    struct engine_config c = l->setup.config;
    bool used = file_same(l->paths[i], l->setup.model_path);
    char name[512], size[24], kind[64], needs[24], free_text[24];
    struct model_footprint weights;
    struct error why = {0};
    struct model *m = NULL;
    struct fit f;
    int rc;

    c.model_path = l->paths[i];
    c.memory = free_bytes == UINT64_MAX ? 0 : free_bytes;
    model_places_name(l->paths[i], name, sizeof name);
    if ((rc = fit_inspect(&c, &m, &weights, &why)) == 0)
        rc = fit_of_model(&c, m, &weights, &f, &why);
    if (rc < 0) {
        strbuf_printf(b, "%3zu %c        -  no     %s: %s\n", i + 1, used ? '>' : ' ', name,
                      why_short(&why, l->paths[i]));
        model_free(m);
        return;
    }
    size_format(weight_file_bytes(m->file), size, sizeof size);
    snprintf(kind, sizeof kind, "%s %s", m->family, dtype_info(m->type)->word);
    strbuf_printf(b, "%3zu %c %8s  %-5s  %-15s %s", i + 1, used ? '>' : ' ', size,
                  f.total <= free_bytes ? "fits" : "large", kind, name);
    if (f.total > free_bytes)
        strbuf_printf(b, ": needs %s of %s", size_format(f.total, needs, sizeof needs),
                      size_format(free_bytes, free_text, sizeof free_text));
    strbuf_puts(b, "\n");
    model_free(m);
}

static int do_look(void *ctx, struct engine *g, char **text, struct error *e)
{
    const struct model_look *l = ctx;
    const struct telemetry *t = engine_telemetry(g);
    struct strbuf b = {0};
    uint64_t available = fit_available();

    if (available != UINT64_MAX) /* the current one is closed first */
        available += telemetry_held(t);
    for (size_t i = 0; i < l->n; i++)
        put_row(&b, l, i, available);
    strbuf_puts(&b, "/model N goes on with number N; --models-dir names further folders");
    if (b.failed) {
        strbuf_release(&b);
        return error_set(e, ERR_MEMORY, "out of memory for the list of models");
    }
    *text = b.data;
    return 0;
}

static int list(struct conversation *c, const struct model_files *f, struct error *e)
{
    struct model_look *l = mem_alloc(1, sizeof *l);
    int rc;

    if (!l || (rc = engine_setup_init(conversation_options(c), &l->setup, e)) < 0) {
        rc = l ? e->code : error_set(e, ERR_MEMORY, "out of memory for the list of models");
        mem_free(l);
        return rc;
    }
    l->paths = mem_alloc(f->n, sizeof *l->paths);
    for (size_t i = 0; l->paths && i < f->n && i < LISTED; i++)
        if ((l->paths[l->n] = mem_string(f->paths[i])))
            l->n++;
    return conversation_call(c, do_look, l, look_release) < 0 ? -1 : 0;
}

int chat_model(struct conversation *c, const char *arguments)
{
    struct error e = {0};
    const struct model_files *f = conversation_models(c, !arguments[0], &e);
    const char *path;

    if (f && !arguments[0]) {
        if (list(c, f, &e) == 0 || !e.code)
            return 0;
    } else if (f && (path = model_places_meant(f, arguments, &e))) {
        return conversation_model(c, path);
    }
    conversation_say(c, SAY_TROUBLE, "%s", e.text);
    return -1;
}

void chat_complete_models(struct conversation *c, const char *line, const char *word, char ***list,
                          size_t *n)
{
    struct error ignored;
    const struct model_files *f = conversation_models(c, false, &ignored);

    for (size_t i = 0; f && i < f->n; i++) {
        char name[512];

        model_places_name(f->paths[i], name, sizeof name);
        chat_completion_add(list, n, name, word);
    }
    chat_complete_files(c, line, word, list, n);
}
